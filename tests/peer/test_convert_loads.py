"""What `hy3 convert` writes loads in llama.cpp: from each checkpoint layout, in every type, with and without
the MTP layer, split; with the same vocabulary, and logits that are numbers.

What it computes is compared in test_llama_cpp.py.
"""

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints import TAGS, write_checkpoint
from support.llama_load import load
from support.random_hy3 import SPECIALS, vocabulary

from hy3.convert import LAYOUTS, Options, convert

pytestmark = pytest.mark.peer

SIZE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 256}


@pytest.mark.parametrize("dialect", ["4.57", "5.x"])
@pytest.mark.parametrize("layout", ["hub", "packed"])
def test_layouts_and_dialects(tmp_path: Path, layout: str, dialect: str) -> None:
    config, _ = write_checkpoint(
        tmp_path / "m",
        layout=layout,
        dialect=dialect,
        shards=2,
        dtype="bf16",
        num_nextn_predict_layers=1,
        **SIZE,
    )
    convert(tmp_path / "m", tmp_path / "x.gguf", Options())
    tokens, _ = vocabulary(config["vocab_size"])
    text = f"{SPECIALS['bos_token_id']}the in{TAGS[0]}{SPECIALS['eot_token_id']}"
    result = load(tmp_path / "x.gguf", text)
    assert result["finite"]
    assert result["vocab"] == config["vocab_size"]
    assert result["layers"] == config["num_hidden_layers"]
    assert not result["adds_bos"]
    for name, key in {"bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id"}.items():
        assert result[name] == tokens.index(SPECIALS[key])
    first_tag = tokens.index(list(SPECIALS.values())[-1]) + 1
    assert result["tokens"] == [
        *[tokens.index(text) for text in (SPECIALS["bos_token_id"], "the", "Ġ", "in")],
        first_tag,
        tokens.index(SPECIALS["eot_token_id"]),
    ]


@pytest.mark.parametrize("kind", [name for name in LAYOUTS if name != "copy"])
def test_types(tmp_path: Path, kind: str) -> None:
    write_checkpoint(tmp_path / "m", num_nextn_predict_layers=1, **SIZE)
    convert(tmp_path / "m", tmp_path / "x.gguf", Options(type=kind))
    assert load(tmp_path / "x.gguf")["finite"]


def test_mtp_variants_and_split_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_nextn_predict_layers=1, **SIZE)
    convert(tmp_path / "m", tmp_path / "trunk.gguf", Options(no_mtp=True))
    assert load(tmp_path / "trunk.gguf")["finite"]
    convert(tmp_path / "m", tmp_path / "mtp.gguf", Options(mtp_only=True))
    assert load(tmp_path / "mtp.gguf", run=False)["layers"] == 3
    files = convert(tmp_path / "m", tmp_path / "s.gguf", Options(split_max_size=500_000))
    assert len(files) > 2
    assert load(files[0])["finite"]


def test_unusual_models(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "attention_factor": 1.3}
    yarn["original_max_position_embeddings"] = 512
    for number, changes in enumerate(
        [
            {"tie_word_embeddings": True, "num_shared_experts": 2},
            {"num_hidden_layers": 4, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"]},
            {"rope_parameters": yarn, "moe_intermediate_size": 80},  # rows of 80: stored as f16
        ]
    ):
        write_checkpoint(tmp_path / f"{number}", dialect="5.x", **{**SIZE, **changes})
        convert(tmp_path / f"{number}", tmp_path / f"{number}.gguf", Options())
        assert load(tmp_path / f"{number}.gguf")["finite"], changes
