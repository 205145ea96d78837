"""A position jump: RoPE takes the tokens after it for so much further on, and nothing else changes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.compare import relative_error, same_bytes
from support.numpy_hy3 import Hy3
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

CONFIG = make_config(num_nextn_predict_layers=1)
WEIGHTS = make_weights(CONFIG, seed=50)
TOKENS = make_tokens(CONFIG, 150, seed=51)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("jump") / "model.gguf", CONFIG, WEIGHTS, in_type("f32"))


@pytest.fixture(scope="module")
def model(path: Path) -> hy3core.Model:
    return hy3core.Model(str(path), threads=2)


def jumped(model: hy3core.Model, cut: int, by: int, chunk: int = 512, mtp: bool = False) -> np.ndarray:
    session = model.session(ctx=256, kv="f32", chunk=chunk, mtp=mtp)
    first = session.eval(TOKENS[:cut], logits="all")
    session.jump(by)
    return np.concatenate([first, session.eval(TOKENS[cut:], logits="all")])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_against_numpy(path: Path, backend: str, report: Callable[[str], None]) -> None:
    positions = np.arange(150) + np.where(np.arange(150) >= 70, 5000, 0)
    expected = Hy3(CONFIG, WEIGHTS).forward(TOKENS, positions).logits
    error = relative_error(jumped(hy3core.Model(str(path), backend=backend), 70, 5000), expected)
    report(f"position jump, {backend}: within {error:.1e} of NumPy (limit 1e-4)")
    assert error < 1e-4
    assert relative_error(jumped(hy3core.Model(str(path), backend=backend), 70, 4000), expected) > 1e-3


def test_it_does_not_depend_on_the_way(model: hy3core.Model) -> None:
    expected = jumped(model, 70, 100_000)
    assert same_bytes(jumped(model, 70, 100_000, chunk=7), expected)
    assert same_bytes(jumped(model, 70, 100_000, mtp=True), expected)
    session = model.session(ctx=256, kv="f32")
    session.eval(TOKENS[:70], logits="none")
    session.jump(60_000)
    session.jump(40_000)
    assert same_bytes(session.fork().eval(TOKENS[70:], logits="all"), expected[70:])
    plain = model.session(ctx=256, kv="f32").eval(TOKENS, logits="all")
    assert same_bytes(jumped(model, 70, 0), plain)
    assert session.position == 70


def test_truncating_takes_the_jump_back(model: hy3core.Model) -> None:
    plain = model.session(ctx=256, kv="f32").eval(TOKENS)
    session = model.session(ctx=256, kv="f32")
    session.eval(TOKENS[:70], logits="none")
    session.jump(1000)
    session.truncate(70)
    assert same_bytes(session.eval(TOKENS[70:]), plain)
    session.truncate(70)
    session.jump(1000)
    session.eval(TOKENS[70:90], logits="none")
    session.truncate(71)  # the jump is before what stays
    assert same_bytes(session.eval(TOKENS[71:]), jumped(model, 70, 1000)[-1])
    session.truncate(69)
    assert same_bytes(session.eval(TOKENS[69:]), plain)


def test_the_mtp_layer_jumps_along(model: hy3core.Model) -> None:
    def drafts(chunk: int, by: int) -> np.ndarray:
        session = model.session(ctx=256, chunk=chunk, mtp=True)
        session.eval(TOKENS[:70], logits="none")
        session.jump(by)
        session.eval(TOKENS[70:80], logits="none")
        return session.mtp_logits(5)

    assert same_bytes(drafts(512, 1000), drafts(3, 1000))
    assert not same_bytes(drafts(512, 1000), drafts(512, 0))


def by_hand(model: hy3core.Model, prompt: list[int], by: int, n: int) -> list[int]:
    session = model.session(ctx=256)
    logits, out = session.eval(prompt), []
    session.jump(by)
    while len(out) < n:
        out.append(int(logits.argmax()))
        logits = session.eval(out[-1:])
    return out


def test_generate_jumps_after_the_prompt(model: hy3core.Model) -> None:
    session = model.session(ctx=256)
    got = list(session.generate(TOKENS[:70], max_tokens=12, stop_ids=[], pos_jump=20_000))
    assert got == by_hand(model, TOKENS[:70], 20_000, 12)
    assert got != by_hand(model, TOKENS[:70], 0, 12)
    # What was computed beyond a jump is nobody's prefix, and neither is the jump itself.
    prompt = [*TOKENS[:70], *got[:5]]
    assert list(session.generate(prompt, max_tokens=5, stop_ids=[])) == by_hand(model, prompt, 0, 5)
    assert session.stats["reused_tokens"] == 70


@pytest.mark.parametrize("by", [-1, 1 << 24, 1 << 62])
def test_jumps_that_make_no_sense(model: hy3core.Model, by: int) -> None:
    session = model.session(ctx=256)
    session.eval(TOKENS[:5], logits="none")
    with pytest.raises(hy3core.Error, match=f"position jump is {by}"):
        session.jump(by)
    with pytest.raises(hy3core.Error, match=f"position jump is {by}"):
        next(session.generate(TOKENS[:9], pos_jump=by))
    session.jump((1 << 24) - 256)
    with pytest.raises(hy3core.Error, match="position jump is 1"):
        session.jump(1)
