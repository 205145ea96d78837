"""The KV cache types: the same bytes whatever the way, the reference's numbers, and the memory they promise.

1,100 positions, so that attention goes over two whole spans of 512 and a part of the next.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.compare import mean_kl, same_bytes
from support.every_type import KV_TYPES
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model
from support.ways import WAYS, Text, differing

import hy3core
from hy3.modelfile import ModelFile

ISAS = tuple(hy3core.build_info()["isas"])
N = 1100
CONFIG = make_config(
    num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=96,
    num_nextn_predict_layers=1,
)  # fmt: skip
TOKENS = make_tokens(CONFIG, N, seed=41)
OTHER = make_tokens(CONFIG, 240, seed=42)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("kv") / "model.gguf"
    return write_model(file, CONFIG, make_weights(CONFIG, seed=40), in_type("f32"))


def model_of(path: Path, threads: int) -> hy3core.Model:
    return hy3core.Model(str(path), backend="cpu", threads=threads)


@pytest.mark.parametrize("kv", KV_TYPES)
def test_the_way_changes_no_byte(kv: str, path: Path) -> None:
    expected = Text(model_of(path, 1), kv, TOKENS, OTHER).expected()
    for threads, ways in [(1, WAYS), (2, ["chunk 64", "company"]), (3, ["straight", "one by one", "forks"])]:
        assert differing(Text(model_of(path, threads), kv, TOKENS, OTHER), expected, ways) == [], threads


@pytest.mark.parametrize("kv", KV_TYPES)
def test_instruction_sets_agree(kv: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = {}
    for isa in ISAS:
        monkeypatch.setenv("HY3_ISA", isa)
        assert hy3core.build_info()["isa"] == isa
        logits[isa] = Text(model_of(path, 2), kv, TOKENS, OTHER).straight()
    first = logits[ISAS[0]]
    assert [isa for isa in ISAS if not same_bytes(logits[isa], first)] == []


@pytest.mark.parametrize(("kv", "most"), [("f32", 1e-9), ("f16", 1e-9), ("q8", 2e-3), ("q4", 2e-3)])
def test_cpu_against_reference(kv: str, most: float, path: Path, report: Callable[[str], None]) -> None:
    """Both keep the same rows; `cpu` also rounds the queries to int8 where keys are quantized, and now and
    then that makes the router choose another expert.
    """
    text = TOKENS[:560]
    logits = {
        backend: hy3core.Model(str(path), backend=backend).session(ctx=1024, kv=kv).eval(text, logits="all")
        for backend in ("reference", "cpu")
    }
    kl = mean_kl(logits["cpu"], logits["reference"])
    report(f"cpu vs reference, {kv} cache: mean KL {kl:.1e} (limit {most:.0e})")
    assert kl < most


@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("mtp", [False, True])
def test_memory(kv: str, mtp: bool, path: Path) -> None:
    """As `hy3 inspect` predicts it, in whole pages of 64 positions."""
    session = model_of(path, 1).session(ctx=1024, kv=kv, mtp=mtp)
    assert session.kv_nbytes == 0
    session.eval(TOKENS[:100], logits="none")
    predicted = ModelFile(hy3core.GGUF(str(path))).kv_bytes(128, kv)
    assert predicted is not None
    assert session.kv_nbytes == (predicted if mtp else predicted * 2 // 3)


def test_q4_needs_heads_of_whole_groups(tmp_path: Path) -> None:
    config = make_config(head_dim=80)
    file = write_model(tmp_path / "model.gguf", config, make_weights(config, seed=43), in_type("f32"))
    model = model_of(file, 1)
    with pytest.raises(hy3core.UnsupportedError, match=r"80.*q8"):
        model.session(ctx=64, kv="q4")
    assert np.isfinite(model.session(ctx=64, kv="q8").eval(TOKENS[:10])).all()


def test_unknown_type(path: Path) -> None:
    with pytest.raises((ValueError, hy3core.Error), match="q8"):
        model_of(path, 1).session(ctx=64, kv="q5")  # type: ignore[arg-type]
