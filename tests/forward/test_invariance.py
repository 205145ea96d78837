"""The answer does not depend on how it was computed: logits equal to the byte.

Whatever the number of threads, the chunk size, the cuts between calls, the company in a step, a reused,
truncated or forked prefix, and whether the MTP layer comes along. On shapes that leave remainders everywhere:
five experts whose groups are never the same size, vocabularies that no vector length divides, 150 positions.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.compare import same_bytes
from support.random_blocks import in_blocks
from support.random_hy3 import make_config, make_tokens, make_weights, write_model

import hy3core

Array = np.ndarray
Open = Callable[..., hy3core.Model]

N = 150
SMALL = make_config(vocab_size=301, moe_intermediate_size=96, num_nextn_predict_layers=1)
WIDE = make_config(  # rows that blocks of 256 divide
    vocab_size=283,
    hidden_size=256,
    intermediate_size=256,
    num_experts_per_tok=3,
    moe_intermediate_size=256,
    num_nextn_predict_layers=1,
)
IN_SMALL = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4")
IN_WIDE = (
    "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs",
    "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s",
)  # fmt: skip
TYPES = IN_SMALL + IN_WIDE
ISAS = tuple(hy3core.build_info()["isas"])
TOKENS = make_tokens(SMALL | {"vocab_size": 283}, N, seed=21)
OTHER = make_tokens(SMALL | {"vocab_size": 283}, 2 * N, seed=22)


@pytest.fixture(scope="module")
def path_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("invariance")

    @cache
    def make(type_name: str) -> Path:
        config = SMALL if type_name in IN_SMALL else WIDE
        return write_model(
            folder / f"{type_name}.gguf", config, make_weights(config, seed=20), in_blocks(type_name)
        )

    return make


def session_of(model: hy3core.Model, kv: str, chunk: int = 512, mtp: bool = False) -> hy3core.Session:
    return model.session(ctx=512, kv=kv, chunk=chunk, mtp=mtp)


def straight(model: hy3core.Model, kv: str, chunk: int = 512) -> Array:
    return session_of(model, kv, chunk).eval(TOKENS, logits="all")


def pieces(total: int, rng: np.random.Generator) -> Iterator[slice]:
    """Random cuts: mostly short pieces, as decoding and verifying drafts make them, and some long ones."""
    at = 0
    while at < total:
        size = int(rng.choice([1, 1, 2, 3, 5, 17, 40]))
        yield slice(at, min(at + size, total))
        at += size


def in_pieces(model: hy3core.Model, kv: str) -> Array:
    session = session_of(model, kv, chunk=16)
    return np.concatenate(
        [session.eval(TOKENS[cut], logits="all") for cut in pieces(N, np.random.default_rng(1))]
    )


def in_company(model: hy3core.Model, kv: str) -> Array:
    """Three sequences advance by uneven pieces, in an order that changes from step to step."""
    rng = np.random.default_rng(2)
    streams = [TOKENS, OTHER[:N], OTHER[N:]]
    sessions = [session_of(model, kv, chunk=64) for _ in streams]
    cuts = [list(pieces(N, rng)) for _ in streams]
    got = []
    while any(cuts):
        order = rng.permutation([i for i in range(3) if cuts[i]])
        items = [(i, streams[i][cuts[i].pop(0)]) for i in order]
        wanted = ["all" if i == 0 else str(rng.choice(["all", "last", "none"])) for i, _ in items]
        results = hy3core.step(
            [(sessions[i], tokens, want) for (i, tokens), want in zip(items, wanted, strict=True)]
        )
        got += [result for (i, _), result in zip(items, results, strict=True) if i == 0]
    return np.concatenate(got)


def after_truncation(model: hy3core.Model, kv: str) -> Array:
    session = session_of(model, kv)
    first = session.eval(TOKENS[:90], logits="all")
    session.eval(OTHER[:33], logits="none")
    session.truncate(90)
    second = session.eval(TOKENS[90:100], logits="all")
    session.truncate(70)  # into the middle of a page
    session.eval(OTHER[:100], logits="none")
    session.truncate(70)
    third = session.eval(TOKENS[70:], logits="all")
    assert same_bytes(third[20:30], second)
    return np.concatenate([first[:70], third])


def after_forks(model: hy3core.Model, kv: str) -> Array:
    """The original and a fork of a fork go on from the same 70 positions while a third session writes over
    them.
    """
    session = session_of(model, kv)
    first = session.eval(TOKENS[:70], logits="all")
    stranger = session.fork()
    stranger.eval(OTHER[:40], logits="none")
    stranger.truncate(10)
    stranger.eval(OTHER[:90], logits="none")
    grandchild = session.fork().fork()
    rest = session.eval(TOKENS[70:], logits="all")
    assert same_bytes(grandchild.eval(TOKENS[70:], logits="all"), rest)
    return np.concatenate([first, rest])


def with_mtp(model: hy3core.Model, kv: str) -> Array:
    session = session_of(model, kv, chunk=9, mtp=True)
    first = session.eval(TOKENS[:77], logits="all")
    session.mtp_logits(5)
    return np.concatenate([first, session.eval(TOKENS[77:], logits="all")])


WAYS: dict[str, Callable[[hy3core.Model, str], Array]] = {
    "chunk 1": lambda model, kv: straight(model, kv, 1),
    "chunk 7": lambda model, kv: straight(model, kv, 7),
    "chunk 64": lambda model, kv: straight(model, kv, 64),
    "pieces": in_pieces,
    "company": in_company,
    "truncation": after_truncation,
    "forks": after_forks,
    "MTP": with_mtp,
}


def differing_ways(
    path: Path, kv: str, threads: int, ways: Iterable[str] = WAYS, backend: str = "cpu"
) -> list[str]:
    """The ways whose logits are not those of one thread and one chunk, byte for byte."""
    expected = straight(hy3core.Model(str(path), backend=backend, threads=1), kv)
    assert np.isfinite(expected).all()
    model = hy3core.Model(str(path), backend=backend, threads=threads)
    wrong = [way for way in ways if not same_bytes(WAYS[way](model, kv), expected)]
    return wrong if same_bytes(straight(model, kv), expected) else ["straight", *wrong]


def use_isa(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    """For the models opened from here on."""
    monkeypatch.setenv("HY3_ISA", isa)
    assert hy3core.build_info()["isa"] == isa


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type_name", TYPES)
def test_every_way_gives_the_same_bytes(
    type_name: str, isa: str, path_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_isa(monkeypatch, isa)
    ways = ("chunk 7", "company", "truncation") if isa == "scalar" else WAYS  # ten times as slow
    assert differing_ways(path_of(type_name), kv="f16", threads=1, ways=ways) == []


@pytest.mark.parametrize("kv", ["f32", "f16"])
@pytest.mark.parametrize("threads", [2, 3, 5])
@pytest.mark.parametrize("type_name", ["f32", "f16", "q8_0", "q4_k", "q6_k", "iq2_xs"])
def test_threads(type_name: str, threads: int, kv: str, path_of: Callable[[str], Path]) -> None:
    """Also with more threads than cores; single rows with two only, since their many small operations each
    wait for the slowest thread.
    """
    ways = WAYS if threads == 2 and type_name == "q4_k" else ("chunk 64", "company")
    assert differing_ways(path_of(type_name), kv, threads, ways) == []


@pytest.mark.parametrize("type_name", ["f32", "q4_k"])
def test_reference_backend(type_name: str, path_of: Callable[[str], Path]) -> None:
    ways = ("chunk 7", "company", "truncation", "forks", "MTP")
    assert differing_ways(path_of(type_name), "f32", threads=1, ways=ways, backend="reference") == []


@pytest.mark.parametrize("type_name", TYPES)
def test_instruction_sets_agree(
    type_name: str,
    path_of: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[str], None],
) -> None:
    """More than the design asks: not only each instruction set with itself, but all with one another."""
    logits = {}
    for isa in ISAS:
        use_isa(monkeypatch, isa)
        logits[isa] = straight(hy3core.Model(str(path_of(type_name))), "f16")
    first = logits[ISAS[0]]
    error = max(float(np.abs(other - first).max()) for other in logits.values())
    report(f"instruction sets {', '.join(ISAS)} on {type_name}: largest difference {error:.1e}")
    assert all(same_bytes(other, first) for other in logits.values())


@pytest.mark.parametrize("type_name", ["f32", "q4_k"])
def test_mtp_logits(type_name: str, path_of: Callable[[str], Path]) -> None:
    """The MTP layer's logits do not depend on threads, chunks, cuts, or on rows that were taken back."""

    def drafts(threads: int, chunk: int, way: str) -> Array:
        session = session_of(hy3core.Model(str(path_of(type_name)), threads=threads), "f16", chunk, mtp=True)
        if way == "pieces":
            for cut in pieces(N, np.random.default_rng(3)):
                session.eval(TOKENS[cut], logits="none")
                session.mtp_logits(OTHER[cut.stop])
        elif way == "truncation":
            session.eval(TOKENS[:80] + OTHER[:40], logits="none")
            session.mtp_logits(3)
            session.truncate(80)
            session.eval(TOKENS[80:], logits="none")
        elif way == "fork":
            session.eval(TOKENS[:80], logits="none")
            parent, session = session, session.fork()
            parent.eval(OTHER[:40], logits="none")
            session.eval(TOKENS[80:], logits="none")
        else:
            session.eval(TOKENS, logits="none")
        return np.stack([session.mtp_logits(token) for token in (7, 8, 7)])

    expected = drafts(1, 512, "straight")
    assert same_bytes(expected[0], expected[2])
    for threads, chunk, way in [
        (3, 512, "straight"), (1, 1, "straight"), (2, 7, "straight"), (2, 64, "pieces"),
        (1, 512, "truncation"), (2, 16, "truncation"), (2, 64, "fork"),
    ]:  # fmt: skip
        assert same_bytes(drafts(threads, chunk, way), expected), (threads, chunk, way)
