"""The ways in which the logits of one text can be computed, all of which must give the same bytes.

    expected = Text(model, kv, tokens, other).expected()
    differing(Text(another_model, kv, tokens, other), expected, ["company", "forks"])

Cuts are made near the end of the text, so that those of a text of 530 tokens lie on both sides of the border
between two spans of attention.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from support.compare import same_bytes

import hy3core

Array = np.ndarray
SINGLE = 40  # tokens at the end that are computed one by one
COMPANY = 140  # tokens at the end that others go along with


class Text(NamedTuple):
    """`tokens`, at least 70, on a model. `other`: 240 or more for other sequences."""

    model: hy3core.Model
    kv: str
    tokens: list[int]
    other: list[int]

    def session(self, chunk: int = 512, mtp: bool = False) -> hy3core.Session:
        return self.model.session(ctx=len(self.tokens) + 240, kv=self.kv, chunk=chunk, mtp=mtp)

    def straight(self, chunk: int = 512) -> Array:
        return self.session(chunk).eval(self.tokens, logits="all")

    def expected(self) -> Array:
        """The logits at every position, and below them the MTP layer's after the last."""
        session = self.session(mtp=True)
        logits = session.eval(self.tokens, logits="all")
        return np.concatenate([logits, session.mtp_logits(self.other[0])[None]])


def pieces(begin: int, end: int, rng: np.random.Generator) -> Iterator[slice]:
    """Random cuts: mostly short pieces, as decoding and verifying drafts make them, and some long ones."""
    while begin < end:
        size = int(rng.choice([1, 1, 2, 3, 5, 17, 40]))
        yield slice(begin, min(begin + size, end))
        begin += size


def one_by_one(text: Text) -> Array:
    """The last tokens: so few queries are shared out over the threads by span."""
    session, first = text.session(), len(text.tokens) - SINGLE
    rows = [session.eval(text.tokens[:first], logits="all")]
    rows += [session.eval([token], logits="all") for token in text.tokens[first:]]
    return np.concatenate(rows)


def in_pieces(text: Text) -> Array:
    session = text.session(chunk=16)
    cuts = pieces(0, len(text.tokens), np.random.default_rng(1))
    return np.concatenate([session.eval(text.tokens[cut], logits="all") for cut in cuts])


def in_company(text: Text) -> Array:
    """Three sequences advance by uneven pieces, in an order that changes from step to step."""
    rng = np.random.default_rng(2)
    streams = [text.tokens, text.other[:120], text.other[120:240]]
    sessions = [text.session(chunk=64) for _ in streams]
    alone = max(len(text.tokens) - COMPANY, 0)
    got = [sessions[0].eval(text.tokens[:alone], logits="all")]
    cuts = [
        list(pieces(begin, len(stream), rng)) for begin, stream in zip((alone, 0, 0), streams, strict=True)
    ]
    while any(cuts):
        order = rng.permutation([i for i in range(3) if cuts[i]])
        items = [(i, streams[i][cuts[i].pop(0)]) for i in order]
        wanted = ["all" if i == 0 else str(rng.choice(["all", "last", "none"])) for i, _ in items]
        results = hy3core.step(
            [(sessions[i], tokens, want) for (i, tokens), want in zip(items, wanted, strict=True)]
        )
        got += [result for (i, _), result in zip(items, results, strict=True) if i == 0]
    return np.concatenate(got)


def after_truncation(text: Text) -> Array:
    """A prefix is reused, and used again after it was cut into a page, with others' tokens in between."""
    session, late, early = text.session(), len(text.tokens) - 10, len(text.tokens) - 60
    first = session.eval(text.tokens[:late], logits="all")
    session.eval(text.other[:33], logits="none")
    session.truncate(late)
    second = session.eval(text.tokens[late:], logits="all")
    session.truncate(early)
    session.eval(text.other[:100], logits="none")
    session.truncate(early)
    third = session.eval(text.tokens[early:], logits="all")
    assert same_bytes(third, np.concatenate([first[early:], second]))
    return np.concatenate([first[:early], third])


def after_forks(text: Text) -> Array:
    """The original and a fork of a fork go on from the same positions while a third session writes over
    them.
    """
    session, at = text.session(), len(text.tokens) - 50
    first = session.eval(text.tokens[:at], logits="all")
    stranger = session.fork()
    stranger.eval(text.other[:40], logits="none")
    stranger.truncate(10)
    stranger.eval(text.other[:90], logits="none")
    grandchild = session.fork().fork()
    rest = session.eval(text.tokens[at:], logits="all")
    assert same_bytes(grandchild.eval(text.tokens[at:], logits="all"), rest)
    return np.concatenate([first, rest])


def with_mtp(text: Text) -> Array:
    """The MTP layer's cache is kept along, and a draft is made in between and at the end."""
    session, at = text.session(chunk=9, mtp=True), len(text.tokens) - 33
    first = session.eval(text.tokens[:at], logits="all")
    session.mtp_logits(text.other[1])
    rest = session.eval(text.tokens[at:], logits="all")
    return np.concatenate([first, rest, session.mtp_logits(text.other[0])[None]])


WAYS: dict[str, Callable[[Text], Array]] = {
    "straight": Text.straight,
    "chunk 1": lambda text: text.straight(1),
    "chunk 7": lambda text: text.straight(7),
    "chunk 64": lambda text: text.straight(64),
    "one by one": one_by_one,
    "pieces": in_pieces,
    "company": in_company,
    "truncation": after_truncation,
    "forks": after_forks,
    "MTP": with_mtp,
}


def differing(text: Text, expected: Array, ways: Iterable[str]) -> list[str]:
    """The ways whose logits are not the expected ones, byte for byte."""
    assert np.isfinite(expected).all()
    n = len(text.tokens)
    assert len(expected) == n + 1
    return [way for way in ways if not same_bytes(WAYS[way](text), expected[: n + (way == "MTP")])]
