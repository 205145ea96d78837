"""tools/make_slice.py, on small shapes: the checkpoint converts, and its weights are spread as they should
be."""

from pathlib import Path

import numpy as np
import pytest
from support.convert_files import tensors
from support.random_hy3 import make_config

from hy3.convert import Options, convert
from tools import make_slice


def test_slice_converts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_slice, "SHARD_BYTES", 200_000)
    monkeypatch.setattr(make_slice, "CHUNK", 1000)
    config = make_config(num_hidden_layers=2, num_nextn_predict_layers=1, vocab_size=400)
    make_slice.write_slice(tmp_path / "m", config, seed=1)
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) > 3
    convert(tmp_path / "m", tmp_path / "x.gguf", Options(type="f32"))
    found = {
        name: np.frombuffer(entry.data, np.float32).reshape(entry.shape)
        for name, entry in tensors(tmp_path / "x.gguf").items()
    }
    assert found["output.weight"].std() * 8 == pytest.approx(1, abs=0.03)  # fan_in 64
    assert found["token_embd.weight"].std() == pytest.approx(1, abs=0.03)
    assert found["blk.1.ffn_down_exps.weight"].std() * 96**0.5 == pytest.approx(1, abs=0.03)
    norm, bias = found["output_norm.weight"], found["blk.1.exp_probs_b"]
    assert 0.5 <= norm.min() < 0.7 and 1.3 < norm.max() <= 1.5
    assert np.abs(bias).min() > 0 and np.abs(bias).max() <= 0.2
    assert len(np.unique(found["output.weight"][:2])) > 100  # no repeated block
    assert not np.array_equal(found["blk.0.attn_k.weight"], found["blk.0.attn_v.weight"])
