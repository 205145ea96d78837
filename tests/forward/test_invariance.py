"""The answer does not depend on how it was computed: logits equal to the byte.

Whatever the number of threads, the chunk size, the cuts between calls, the company in a step, a reused,
truncated or forked prefix, and whether the MTP layer comes along (support/ways.py).
"""

from collections.abc import Callable

import numpy as np
import pytest
from support.compare import same_bytes
from support.every_type import KV_TYPES, TYPES, common_tokens
from support.ways import WAYS, Array, Text, differing, pieces

import hy3core

ISAS = tuple(hy3core.build_info()["isas"])
THREADS = range(1, 9)
N = 530  # a span of attention and a part of the next
TOKENS = common_tokens(N, seed=21)
OTHER = common_tokens(240, seed=22)

Open = Callable[..., hy3core.Model]


def use_isa(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    """For the models opened from here on."""
    monkeypatch.setenv("HY3_ISA", isa)
    assert hy3core.build_info()["isa"] == isa


# One for each number of threads. "chunk 1" is left to shorter texts: it takes as long as the others together.
TURNS = ("straight", "chunk 7", "chunk 64", "one by one", "company", "truncation", "forks", "MTP")


@pytest.mark.parametrize("type_name", TYPES)
def test_every_weight_and_cache_type(type_name: str, open_model: Open) -> None:
    """Each pair of types meets every number of threads, 1 to 8, and every way, and over the pairs each number
    meets each way: with every type of weights at least in half of them.
    """
    models = [open_model(type_name, threads=threads) for threads in THREADS]
    wrong: list[tuple[str, int, str]] = []
    for i, kv in enumerate(KV_TYPES):
        expected = Text(models[0], kv, TOKENS, OTHER).expected()
        for j, model in enumerate(models):
            turn = TURNS[(TYPES.index(type_name) + 2 * i + j) % len(TURNS)]
            ways = differing(Text(model, kv, TOKENS, OTHER), expected, [turn])
            wrong += [(kv, model.threads, way) for way in ways]
    assert wrong == []


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("type_name", TYPES)
def test_every_instruction_set(
    type_name: str, isa: str, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On texts that are shorter: `scalar` is ten times as slow."""
    use_isa(monkeypatch, isa)
    kv = KV_TYPES[(TYPES.index(type_name) + ISAS.index(isa)) % len(KV_TYPES)]
    text = Text(open_model(type_name, threads=2), kv, TOKENS[: 70 if isa == "scalar" else 150], OTHER)
    ways = ("chunk 7", "company", "truncation") if isa == "scalar" else WAYS
    assert differing(text, text.expected(), ways) == []


@pytest.mark.parametrize("type_name", ["f32", "q4_k"])
def test_reference_backend(type_name: str, open_model: Open) -> None:
    text = Text(open_model(type_name, backend="reference", threads=1), "f32", TOKENS[:150], OTHER)
    ways = ("chunk 7", "company", "truncation", "forks", "MTP")
    assert differing(text, text.expected(), ways) == []


@pytest.mark.parametrize("type_name", TYPES)
def test_instruction_sets_agree(
    type_name: str,
    open_model: Open,
    monkeypatch: pytest.MonkeyPatch,
    report: Callable[[str], None],
) -> None:
    """More than the design asks: not only each instruction set with itself, but all with one another."""
    logits = {}
    for isa in ISAS:
        use_isa(monkeypatch, isa)
        logits[isa] = Text(open_model(type_name), "f16", TOKENS[:150], OTHER).straight()
    first = logits[ISAS[0]]
    error = max(float(np.abs(other - first).max()) for other in logits.values())
    report(f"instruction sets {', '.join(ISAS)} on {type_name}: largest difference {error:.1e}")
    assert all(same_bytes(other, first) for other in logits.values())


@pytest.mark.parametrize("type_name", ["f32", "q4_k"])
def test_mtp_logits(type_name: str, open_model: Open) -> None:
    """The MTP layer's logits do not depend on threads, chunks, cuts, or on rows that were taken back."""
    tokens = TOKENS[:150]

    def drafts(threads: int, chunk: int, way: str) -> Array:
        text = Text(open_model(type_name, threads=threads), "f16", tokens, OTHER)
        session = text.session(chunk, mtp=True)
        if way == "pieces":
            for cut in pieces(0, len(tokens), np.random.default_rng(3)):
                session.eval(tokens[cut], logits="none")
                session.mtp_logits(OTHER[cut.stop])
        elif way == "truncation":
            session.eval(tokens[:80] + OTHER[:40], logits="none")
            session.mtp_logits(3)
            session.truncate(80)
            session.eval(tokens[80:], logits="none")
        elif way == "fork":
            session.eval(tokens[:80], logits="none")
            parent, session = session, session.fork()
            parent.eval(OTHER[:40], logits="none")
            session.eval(tokens[80:], logits="none")
        else:
            session.eval(tokens, logits="none")
        return np.stack([session.mtp_logits(token) for token in (7, 8, 7)])

    expected = drafts(1, 512, "straight")
    assert same_bytes(expected[0], expected[2])
    for threads, chunk, way in [
        (3, 512, "straight"), (1, 1, "straight"), (2, 7, "straight"), (2, 64, "pieces"),
        (1, 512, "truncation"), (2, 16, "truncation"), (2, 64, "fork"),
    ]:  # fmt: skip
        assert same_bytes(drafts(threads, chunk, way), expected), (threads, chunk, way)
