"""Measures over a text: `perplexity`, and `kl` against a reference's distributions saved before.

Both go through the text in windows: each window's tokens see at most `window` tokens, and each token but the
first is measured once, with at least `window - stride` tokens before it, and one in any case (fewer at the
beginning).
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hy3.errors import Hy3Error

if TYPE_CHECKING:
    from hy3core import Session

MAGIC = b"hy3logp1"
ROWS = 32  # logits that are looked at together
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Window:
    begin: int
    end: int
    first: int  # the first token that is measured here


def windows(n: int, window: int, stride: int) -> Iterator[Window]:
    begin, first = 0, 1
    while first < n:
        end = min(begin + window, n)
        yield Window(begin, end, first)
        first = end
        begin = max(0, min(end - 1, end + stride - window))


def perplexity(
    session: "Session", tokens: list[int], window: int, stride: int, progress: Progress
) -> dict[str, Any]:
    """exp of the mean negative log-probability, with its standard error."""
    losses: list[NDArray[np.float32]] = []
    for at in windows(len(tokens), window, stride):
        session.reset()
        losses.append(-session.score(tokens[at.begin : at.end])[at.first - at.begin :])
        progress(at.end, len(tokens))
    each = np.concatenate(losses).astype(np.float64)
    mean, error = float(each.mean()), float(each.std() / np.sqrt(len(each)))
    value = float(np.exp(mean))
    return {
        "tokens": len(each),
        "mean_nll": mean,
        "perplexity": value,
        "standard_error": value * error,
        "window": window,
        "stride": stride,
    }


def log_probabilities(
    session: "Session", tokens: list[int], window: int, stride: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The distribution of each measured token: (its place, (vocab))."""
    for at in windows(len(tokens), window, stride):
        session.reset()
        session.eval(tokens[at.begin : at.first - 1], logits="none")
        for start in range(at.first - 1, at.end - 1, ROWS):
            rows = session.eval(tokens[start : min(start + ROWS, at.end - 1)], logits="all")
            assert rows is not None
            for i, row in enumerate(rows):
                largest = row.max()
                yield start + i + 1, row - (largest + np.log(np.exp(row - largest).sum()))


def save(
    path: Path, session: "Session", tokens: list[int], window: int, stride: int, progress: Progress
) -> None:
    """The reference: a header, the tokens, and a row a measured token: the largest log-probability and the
    range below it as float32, then 16 bits a token of the vocabulary. Written aside, then renamed."""
    aside = path.with_name(path.name + ".part")
    try:
        with aside.open("wb") as file:
            vocab = session.model.config.vocab_size
            file.write(MAGIC + struct.pack("<QQQQ", len(tokens), vocab, window, stride))
            file.write(np.asarray(tokens, dtype="<i4").tobytes())
            for place, row in log_probabilities(session, tokens, window, stride):
                high, low = float(row.max()), float(row.min())
                codes = np.rint((high - row) * (65535.0 / max(high - low, 1e-9))).astype("<u2")
                file.write(struct.pack("<ff", high, high - low) + codes.tobytes())
                progress(place + 1, len(tokens))
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@dataclass(frozen=True)
class Reference:
    tokens: list[int]
    vocab: int
    window: int
    stride: int
    file: BinaryIO

    @classmethod
    def open(cls, path: Path) -> "Reference":
        file = path.open("rb")
        head = file.read(40)
        if len(head) != 40 or head[:8] != MAGIC:
            raise Hy3Error(
                f"{path} holds no saved distributions", "Write them first: hy3 eval --suite kl --save FILE"
            )
        count, vocab, window, stride = struct.unpack("<QQQQ", head[8:])
        expected = 40 + 4 * count + max(0, count - 1) * (8 + 2 * vocab)
        size = path.stat().st_size
        if (
            not (1 < count < 1 << 32 and 0 < vocab < 1 << 24 and 0 < stride <= window < 1 << 32)
            or size != expected
        ):
            raise Hy3Error(f"{path} is damaged: {size} bytes, {expected} were expected", "Write it again")
        return cls(np.frombuffer(file.read(4 * count), "<i4").tolist(), vocab, window, stride, file)

    def row(self) -> NDArray[np.float32]:
        """The next one."""
        high, span = struct.unpack("<ff", self.file.read(8))
        codes = np.frombuffer(self.file.read(2 * self.vocab), "<u2")
        row: NDArray[np.float32] = np.float32(high) - codes.astype(np.float32) * np.float32(span / 65535.0)
        return row


def divergence(session: "Session", reference: Reference, progress: Progress) -> dict[str, Any]:
    """KL(reference || this model) of each measured token's distribution, and how often the likeliest token is
    the same."""
    if session.model.config.vocab_size != reference.vocab:
        raise Hy3Error(
            f"The reference has a vocabulary of {reference.vocab}, the model one of "
            f"{session.model.config.vocab_size}",
            "Compare models with the same tokenizer",
        )
    each, same = [], 0
    rows = log_probabilities(session, reference.tokens, reference.window, reference.stride)
    for place, ours in rows:
        theirs = reference.row()
        probability = np.exp(theirs.astype(np.float64))
        each.append(float((probability * (theirs.astype(np.float64) - ours)).sum() / probability.sum()))
        same += int(ours.argmax() == theirs.argmax())
        progress(place + 1, len(reference.tokens))
    return {
        "tokens": len(each),
        "mean_kl": float(np.mean(each)),
        "kl_99": float(np.quantile(each, 0.99)),
        "largest_kl": float(np.max(each)),
        "top1_agreement": same / len(each),
        "window": reference.window,
        "stride": reference.stride,
    }
