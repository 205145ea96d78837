"""eval/synth.py on small shapes: files of every type load and compute, with activations of a sane size."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from support.gguf_files import tensor_bytes
from support.random_hy3 import HY3, gguf_shapes, make_config, make_tokens

import hy3core
from eval import synth

SMALL = {
    "vocab_size": 300,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts": 16,
    "moe_intermediate_size": 256,
}


@pytest.fixture(autouse=True)
def small_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth, "POOL_BYTES", 1 << 16)


@pytest.mark.parametrize("kind", synth.WEIGHT_TYPES)
def test_every_type_computes(tmp_path: Path, kind: str) -> None:
    config = synth.slice_config("hy3", 2, mtp=True, **SMALL)
    synth.write_slice(tmp_path / "x.gguf", config, kind, kind)
    model = hy3core.Model(tmp_path / "x.gguf")
    found = {tensor.name: tensor for tensor in model.tensors}
    assert found["blk.1.ffn_up_exps.weight"].type == found["blk.0.attn_q.weight"].type == kind
    assert found["token_embd.weight"].type == "f16" and found["blk.2.ffn_gate_inp.weight"].type == "f32"
    assert model.config.n_mtp_layers == 1
    session = model.session(ctx=64, mtp=True)
    logits = session.eval(make_tokens(config, 40, seed=2), logits="all")
    assert logits is not None and np.isfinite(logits).all()
    assert 0.5 < logits.std() < 2
    assert np.isfinite(session.mtp_logits(3)).all()


@pytest.mark.parametrize("kind", synth.WEIGHT_TYPES)
def test_weights_have_the_deviation_that_keeps_activations(tmp_path: Path, kind: str) -> None:
    config = synth.slice_config("hy3", 1, **SMALL)
    synth.write_slice(tmp_path / "x.gguf", config, kind, kind)
    file = hy3core.GGUF(tmp_path / "x.gguf")
    for tensor in file.tensors:
        if len(tensor.shape) == 1 or tensor.name == "token_embd.weight":
            continue
        values = hy3core.dequantize(file.tensor(tensor.name), tensor.type, prod(tensor.shape))
        assert values.std() * tensor.shape[0] ** 0.5 == pytest.approx(1, abs=0.15), tensor.name
        assert abs(values.mean()) < 0.2 * values.std(), tensor.name


def test_the_published_shapes() -> None:
    config = synth.slice_config("hy3", 4)
    assert gguf_shapes(config)["blk.4.ffn_down_exps.weight"] == (192, 4096, 1536)
    assert 9.5 < synth.slice_bytes(config, "q4_k", "q8_0") / 2**30 < 9.7
    shapes = gguf_shapes(make_config(**HY3, num_hidden_layers=80))
    assert round(sum(map(prod, shapes.values())) / 1e9) == 295
    assert gguf_shapes(synth.slice_config("hy-mt2", 1))["blk.0.attn_k.weight"] == (512, 2048)


def test_the_size_is_known_before_it_is_written(tmp_path: Path) -> None:
    config = synth.slice_config("hy3", 2, **SMALL)
    synth.write_slice(tmp_path / "x.gguf", config, "iq2_xxs", "q8_0")
    tensors = hy3core.GGUF(tmp_path / "x.gguf").tensors
    assert sum(tensor.nbytes for tensor in tensors) == synth.slice_bytes(config, "iq2_xxs", "q8_0")
    assert all(tensor.nbytes == tensor_bytes(tensor.shape[::-1], tensor.type) for tensor in tensors)


def test_rows_that_blocks_do_not_divide_are_refused(tmp_path: Path) -> None:
    config = synth.slice_config("hy3", 1, **SMALL | {"moe_intermediate_size": 96})
    with pytest.raises(ValueError, match="rows of 96, which the blocks of q4_k do not divide"):
        synth.write_slice(tmp_path / "x.gguf", config, "q4_k", "q8_0")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(synth.Pools, "pieces", full)
    with pytest.raises(OSError, match="No space"):
        synth.write_slice(tmp_path / "x.gguf", synth.slice_config("hy3", 1, **SMALL), "q4_k", "q8_0")
    assert list(tmp_path.iterdir()) == []
