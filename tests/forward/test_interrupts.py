"""Signals reach a running call within 100 ms, whatever it is busy with, and leave no trace: the session is as
before it. Other threads run meanwhile.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.alarm import seconds_to_stop
from support.compare import same_bytes
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model
from support.session_files import PAGE, Saved

import hy3core

LIMIT = 0.1  # seconds
CONFIG = make_config(
    hidden_size=256, num_attention_heads=8, head_dim=128, num_hidden_layers=6, intermediate_size=1024,
    num_experts=8, num_experts_per_tok=4, moe_intermediate_size=256, max_position_embeddings=8192,
)  # fmt: skip
TOKENS = make_tokens(CONFIG, 2100, seed=33)


def open_model(path: Path, config: dict[str, Any], threads: int = 1) -> hy3core.Model:
    write_model(path, config, make_weights(config, seed=32), in_type("f16"))
    return hy3core.Model(path, threads=threads)


def stopped_after(latencies: list[float]) -> str:
    return f"stopped after {', '.join(f'{1000 * seconds:.0f}' for seconds in latencies)} ms (limit 100)"


def seconds_of(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    """Large enough that 2,000 tokens take seconds on any machine."""
    return open_model(tmp_path_factory.mktemp("slow") / "model.gguf", CONFIG)


@pytest.mark.parametrize("chunk", [16, 512, 2000])
def test_a_prompt(slow: hy3core.Model, chunk: int, report: Callable[[str], None]) -> None:
    session = slow.session(ctx=4096, chunk=chunk)
    session.eval(TOKENS[:10], logits="none")
    before = session.hidden.copy()
    latency = seconds_to_stop(lambda: session.eval(TOKENS[20:2020], logits="none"), delay=0.15)
    report(f"signal, step of 2,000 tokens, chunk {chunk}: {stopped_after([latency])}")
    assert latency < LIMIT
    assert list(session.tokens) == TOKENS[:10]
    assert same_bytes(session.hidden, before)
    assert same_bytes(session.eval(TOKENS[10:20]), slow.session(ctx=64).eval(TOKENS[:20]))


# --- deep in a long context, where attention is nearly all there is to do

# Many query heads read the keys and values of one, so that a token takes long and its context is small.
DEEP = make_config(
    num_hidden_layers=1, mlp_layer_types=["dense"], num_attention_heads=1024, num_key_value_heads=1,
    head_dim=128, max_position_embeddings=1 << 15,
)  # fmt: skip
DEPTHS = {"f16": 1 << 13, "q4": 1 << 14}


@pytest.fixture(scope="module")
def deep_model(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Model:
    return open_model(tmp_path_factory.mktemp("deep") / "model.gguf", DEEP)


@pytest.fixture(scope="module", params=DEPTHS)
def deep(
    request: pytest.FixtureRequest, deep_model: hy3core.Model, tmp_path_factory: pytest.TempPathFactory
) -> hy3core.Session:
    """A context that would take minutes to compute: a saved page again and again."""
    kv, file = request.param, tmp_path_factory.mktemp("deep") / "saved"
    page = deep_model.session(ctx=PAGE, kv=kv)
    page.eval(make_tokens(DEEP, PAGE, seed=1), logits="none")
    page.save(file)
    saved = Saved.parse(file.read_bytes(), DEEP["hidden_size"])
    saved.tokens *= DEPTHS[kv] // PAGE
    saved.set_pages(DEPTHS[kv] // PAGE)
    file.write_bytes(saved.sealed())
    session = deep_model.session(ctx=DEPTHS[kv] + 1000, kv=kv)
    session.load(file)
    return session


@pytest.mark.parametrize(("what", "n"), [("token", 1), ("chunk", 512)])
def test_at_depth(deep: hy3core.Session, what: str, n: int, report: Callable[[str], None]) -> None:
    tokens, position, state = make_tokens(DEEP, n, seed=2), deep.position, deep.hidden.copy()
    seconds = seconds_of(lambda: deep.fork().eval(tokens[:1]))
    latency = seconds_to_stop(lambda: deep.eval(tokens), delay=seconds / 4)
    report(
        f"signal, {what} at depth {position}, {deep.kv} KV, {seconds:.2f} s a token: "
        f"{stopped_after([latency])}"
    )
    assert latency < min(LIMIT, n * seconds / 2)
    assert deep.position == position
    assert same_bytes(deep.hidden, state)


# --- saving and loading


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> hy3core.Session:
    """120 MiB of keys and values for few tokens, in pages of 40 MiB, as large models have them."""
    config = make_config(
        hidden_size=32, num_hidden_layers=10, mlp_layer_types=["dense"] * 10, num_attention_heads=32,
        num_key_value_heads=32, head_dim=256,
    )  # fmt: skip
    model = open_model(tmp_path_factory.mktemp("large") / "model.gguf", config, threads=2)
    session = model.session(ctx=3 * PAGE, kv="f32")
    session.eval(make_tokens(config, 3 * PAGE, seed=3), logits="none")
    assert session.kv_nbytes == 120 << 20
    return session


PARTS = (0.1, 0.3, 0.5, 0.7)  # of the time that it takes


def limit_of(seconds: float) -> float:
    """On a busy machine, where all takes longer: what is left to do would take more."""
    return max(LIMIT, seconds / 5)


def test_saving(large: hy3core.Session, tmp_path: Path, report: Callable[[str], None]) -> None:
    file = tmp_path / "saved"

    def act() -> None:
        file.write_bytes(b"what was there")
        large.save(file)

    seconds = seconds_of(act)
    latencies = [seconds_to_stop(act, part * seconds) for part in PARTS]
    report(f"signal, saving 120 MiB in {seconds:.2f} s: {stopped_after(latencies)}")
    assert max(latencies) < limit_of(seconds)
    assert file.read_bytes() == b"what was there"
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved"]


def test_loading(large: hy3core.Session, tmp_path: Path, report: Callable[[str], None]) -> None:
    large.save(tmp_path / "saved")
    session = large.model.session(ctx=3 * PAGE, kv="f32")
    state: list[np.ndarray] = []

    def act() -> None:
        session.reset()
        session.eval([1, 2, 3], logits="none")
        state[:] = [session.hidden.copy()]
        session.load(tmp_path / "saved")

    seconds = seconds_of(act)
    latencies = [seconds_to_stop(act, part * seconds) for part in PARTS]
    report(f"signal, loading 120 MiB in {seconds:.2f} s: {stopped_after(latencies)}")
    assert max(latencies) < limit_of(seconds)
    assert session.tokens == [1, 2, 3]
    assert same_bytes(session.hidden, state[0])


# --- other threads


def test_other_threads_run_during_a_step(slow: hy3core.Model) -> None:
    """The GIL is released: this thread gets its turns while another one's step computes."""
    session = slow.session(ctx=4096)
    worker = threading.Thread(target=session.eval, args=(TOKENS[:300],))
    turns = 0
    worker.start()
    while worker.is_alive():
        turns += 1
        time.sleep(0.001)
    assert session.position == 300
    assert turns > 10
