"""Checkpoints as `transformers` itself saves them, converted: every tensor and the keys."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from live.torch_hy3 import make_model
from support.checkpoints import write_tokenizer
from support.convert_files import encoded, metadata, tensors
from support.random_hy3 import gguf_weights, make_config, make_weights

from hy3.convert import Options, convert

pytestmark = pytest.mark.live

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tied, dense in the middle": {
        "num_hidden_layers": 4,
        "mlp_layer_types": ["sparse", "dense", "sparse", "sparse"],
        "tie_word_embeddings": True,
    },
    "two shared experts, YaRN": {
        "num_shared_experts": 2,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "original_max_position_embeddings": 256,
        },
    },
}


@pytest.mark.parametrize("shards", ["5GB", "200KB"])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_saved_by_transformers(tmp_path: Path, variant: str, shards: str) -> None:
    config = make_config(**VARIANTS[variant])
    weights = make_weights(config, seed=3)
    model = make_model(config, weights)
    model.save_pretrained(tmp_path / "m", max_shard_size=shards)
    assert (tmp_path / "m" / "model.safetensors").exists() == (shards == "5GB")
    write_tokenizer(tmp_path / "m", config["vocab_size"])
    convert(tmp_path / "m", tmp_path / "out.gguf", Options(type="f32"))
    wanted = {name: encoded(array, "f32") for name, array in gguf_weights(config, weights).items()}
    assert {name: entry.data for name, entry in tensors(tmp_path / "out.gguf").items()} == wanted
    keys = metadata(tmp_path / "out.gguf")
    assert keys["hy_v3.block_count"] == config["num_hidden_layers"]
    assert keys.get("hy_v3.rope.scaling.factor") == config["rope_parameters"].get("factor")


def test_bfloat16_and_the_packed_layout(tmp_path: Path) -> None:
    """The packed layout is what the modules of `transformers` hold; saving them as they are gives it."""
    from safetensors.torch import save_file

    config = make_config()
    model = make_model(config, make_weights(config, seed=3)).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "hub")
    (tmp_path / "packed").mkdir()
    save_file(
        {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
        tmp_path / "packed" / "model.safetensors",
    )
    values = json.loads((tmp_path / "hub" / "config.json").read_text()) | {"_name_or_path": "same"}
    for layout in ("hub", "packed"):
        (tmp_path / layout / "config.json").write_text(json.dumps(values))
        (tmp_path / layout / "generation_config.json").unlink(missing_ok=True)
        write_tokenizer(tmp_path / layout, config["vocab_size"])
        convert(tmp_path / layout, tmp_path / f"{layout}.gguf", Options(type="bf16"))
    assert "blk.1.ffn_gate_exps.weight" in tensors(tmp_path / "hub.gguf")
    assert (tmp_path / "hub.gguf").read_bytes() == (tmp_path / "packed.gguf").read_bytes()
