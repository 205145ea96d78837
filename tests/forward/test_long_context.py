"""What a long context costs, at a length that a test can afford; `eval/long_context.py` goes further."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.random_hy3 import in_type, make_config, make_weights, write_model

import hy3core
from eval.long_context import DECODED, depths, line, open_session
from hy3.modelfile import ModelFile

ROOT = Path(__file__).parents[2]
CONFIG = make_config(
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=2,
    head_dim=128,
    max_position_embeddings=1024,
)
CTX = 4096
LEAST = 100


def test_depths_double_up_to_the_whole() -> None:
    assert depths(131072, 512) == [1023, 2047, 4095, 8190, 16380, 32760, 65520, 131040]
    assert depths(1000, 512) == [1000 - DECODED]


def test_the_line_through_points_on_one() -> None:
    fit = line([{"depth": depth, "ms_per_token": 2 + depth / 500} for depth in (1000, 2000, 4000)])
    assert fit == pytest.approx({"ms": 2, "ms_per_1000_tokens": 2, "worst": 0})


@pytest.mark.parametrize("kv", ["f16", "q4"])
def test_memory_grows_as_the_cache_and_time_with_the_depth(
    kv: str, tmp_path: Path, report: Callable[[str], None]
) -> None:
    path = write_model(tmp_path / "model.gguf", CONFIG, make_weights(CONFIG, seed=1), in_type("f16"))
    assert open_session(path, CTX, kv, threads=1).model.config.rope_factor == 4.0  # four times the trained
    # In a process of its own: this one has freed memory at hand, and its private memory would not grow.
    command = [sys.executable, "-m", "eval.long_context", "-m", path, "--ctx", CTX, "--least", LEAST]
    command += ["--kv", kv, "--threads", 1, "--json", tmp_path / "points.json"]
    subprocess.run([str(part) for part in command], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    points = json.loads((tmp_path / "points.json").read_text())["points"]
    per_token = ModelFile(hy3core.GGUF(path)).kv_bytes(1, kv)
    assert per_token is not None
    first, half, last = points[0], points[-2], points[-1]
    times = last["depth"] / first["depth"]
    assert times == pytest.approx(32, rel=0.1)
    grown = last["private_bytes"] - half["private_bytes"]
    expected = per_token * (last["depth"] - half["depth"])
    report(
        f"long context, {kv}: {half['depth']:.0f} to {last['depth']:.0f} tokens, private memory "
        f"+{grown / 2**20:.1f} MiB (KV {expected / 2**20:.1f}); "
        f"{first['depth']:.0f} to {last['depth']:.0f}, "
        f"{first['ms_per_token']:.2f} to {last['ms_per_token']:.2f} ms a token"
    )
    # In the first half come also the buffers of a step of 512 tokens.
    assert grown < 1.1 * expected + 2 * 2**20
    assert last["private_bytes"] - first["private_bytes"] > 0.9 * per_token * (last["depth"] - first["depth"])
    # 32 times the depth costs at most 32 times the time; a cost that grew with its square, 1,024 times. What
    # is between is for the noise: a shared machine's memory has been ten times slower than its caches.
    assert last["ms_per_token"] < 8 * times * first["ms_per_token"]
