"""Checkpoints to GGUF: every layout, dialect, type and MTP variant gives the tensors and keys it should."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.checkpoints import TAGS, TEMPLATE, write_checkpoint
from support.convert_files import converted, encoded, metadata, tensors
from support.random_hy3 import MERGES, SPECIALS, gguf_weights

from hy3.convert import LAYOUTS, Options, Override, convert
from hy3.convert.progress import Progress

MTP: dict[str, Any] = {"num_nextn_predict_layers": 1}
WIDE: dict[str, Any] = {"hidden_size": 256, "moe_intermediate_size": 256, "num_experts": 3, **MTP}


class Heard(Progress):
    """Collects the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def to_gguf(source: Path, out: Path, options: Options, **settings: Any) -> list[str]:
    heard = Heard()
    convert(source, out, options, progress=heard, **settings)
    return heard.warnings


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dialect", ["4.57", "5.x"])
@pytest.mark.parametrize("layout", ["hub", "packed"])
def test_every_layout_and_dialect_gives_the_weights(
    tmp_path: Path, layout: str, dialect: str, shards: int
) -> None:
    config, weights = write_checkpoint(
        tmp_path / "m", layout=layout, dialect=dialect, shards=shards, num_hidden_layers=2, **MTP
    )
    assert to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="f32")) == []
    wanted = gguf_weights(config, weights)
    found = tensors(tmp_path / "out.gguf")
    assert set(found) == set(wanted)
    for name, entry in found.items():
        assert entry.shape == wanted[name].shape, name
        assert entry.data == wanted[name].astype(np.float32).tobytes(), name


@pytest.mark.parametrize("dialect", ["4.57", "5.x"])
@pytest.mark.parametrize("kind", [name for name in LAYOUTS if name != "copy"])
def test_layouts_are_byte_identical_in_every_type(tmp_path: Path, dialect: str, kind: str) -> None:
    for layout in ("hub", "packed"):
        write_checkpoint(tmp_path / layout, layout=layout, dialect=dialect, dtype="bf16", shards=2, **WIDE)
        to_gguf(tmp_path / layout, tmp_path / f"{layout}.gguf", Options(type=kind))
    assert (tmp_path / "hub.gguf").read_bytes() == (tmp_path / "packed.gguf").read_bytes()


def test_tensors_are_in_the_documented_order(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_hidden_layers=2, **MTP)
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="f32"))
    block = ["attn_norm.weight", *[f"attn_{x}.weight" for x in ("q", "k", "v", "output", "q_norm", "k_norm")]]
    block += ["ffn_norm.weight"]
    ffn = ["ffn_gate{}.weight", "ffn_up{}.weight", "ffn_down{}.weight"]
    dense = [name.format("") for name in ffn]
    sparse = ["ffn_gate_inp.weight", "exp_probs_b"]
    sparse += [name.format(kind) for kind in ("_exps", "_shexp") for name in ffn]
    glue = [f"nextn.{x}.weight" for x in ("eh_proj", "enorm", "hnorm", "shared_head_norm")]
    wanted = ["token_embd.weight", "output_norm.weight", "output.weight"]
    for number, parts in enumerate([block + dense, block + sparse, block + sparse + glue]):
        wanted += [f"blk.{number}.{part}" for part in parts]
    assert list(tensors(tmp_path / "out.gguf")) == wanted


def test_keys(tmp_path: Path) -> None:
    config, _ = write_checkpoint(tmp_path / "m", num_hidden_layers=3, num_shared_experts=2, **MTP)
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    keys = metadata(tmp_path / "out.gguf")
    wanted = {
        "general.architecture": "hy_v3",
        "general.name": "test/random-hy3",
        "general.file_type": 15,
        "general.quantization_version": 2,
        "general.sampling.temp": np.float32(0.7),
        "general.sampling.top_p": np.float32(0.9),
        "general.sampling.top_k": 0,
        "general.sampling.penalty_repeat": np.float32(1.05),
        "hy_v3.block_count": 4,
        "hy_v3.nextn_predict_layers": 1,
        "hy_v3.context_length": 2048,
        "hy_v3.embedding_length": 64,
        "hy_v3.feed_forward_length": 160,
        "hy_v3.attention.head_count": 4,
        "hy_v3.attention.head_count_kv": 2,
        "hy_v3.attention.key_length": 64,
        "hy_v3.attention.value_length": 64,
        "hy_v3.attention.layer_norm_rms_epsilon": np.float32(1e-5),
        "hy_v3.rope.dimension_count": 64,
        "hy_v3.rope.freq_base": 11158840.0,
        "hy_v3.expert_count": 5,
        "hy_v3.expert_used_count": 2,
        "hy_v3.expert_shared_count": 2,
        "hy_v3.expert_feed_forward_length": 96,
        "hy_v3.expert_shared_feed_forward_length": 192,
        "hy_v3.expert_weights_norm": True,
        "hy_v3.expert_weights_scale": np.float32(2.826),
        "hy_v3.expert_gating_func": 2,
        "hy_v3.leading_dense_block_count": 1,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "hunyuan-dense",
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    assert {key: keys.get(key) for key in wanted} == wanted
    assert not [key for key in keys if "rope.scaling" in key or key.startswith("split.")]
    tokens, types = list(keys["tokenizer.ggml.tokens"]), list(keys["tokenizer.ggml.token_type"])
    assert len(tokens) == len(types) == config["vocab_size"]
    for key, text in SPECIALS.items():
        assert keys[f"tokenizer.ggml.{key}"] == tokens.index(text)
        assert types[tokens.index(text)] == 3
    assert [types[tokens.index(text)] for text in TAGS] == [4, 4]
    first = tokens.index(TAGS[-1]) + 1
    assert tokens[first:] == [f"[PAD{i}]" for i in range(first, config["vocab_size"])]
    assert set(types[first:]) == {5} and set(types[:256]) == {1}
    assert list(keys["tokenizer.ggml.merges"]) == MERGES


@pytest.mark.parametrize(
    ("rope", "factor"),
    [
        ({}, None),
        ({"attention_factor": 1.25}, 1.25 / (1 + 0.1 * np.log(4))),
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, 1 / (1 + 0.05 * np.log(4))),
    ],
)
@pytest.mark.parametrize("dialect", ["4.57", "5.x"])
def test_yarn(tmp_path: Path, dialect: str, rope: dict[str, float], factor: float | None) -> None:
    parameters = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 16.0, **rope}
    parameters["original_max_position_embeddings"] = 512
    write_checkpoint(tmp_path / "m", dialect=dialect, rope_parameters=parameters)
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    p = "hy_v3.rope."
    keys = {
        key.removeprefix(p): value
        for key, value in metadata(tmp_path / "out.gguf").items()
        if key.startswith(p)
    }
    attn_factor = keys.pop("scaling.attn_factor", None)
    assert keys == {
        "dimension_count": 64,
        "freq_base": 10000.0,
        "scaling.type": "yarn",
        "scaling.factor": 4.0,
        "scaling.original_context_length": 512,
        "scaling.yarn_beta_fast": 16.0,
        "scaling.yarn_beta_slow": 1.0,
    }
    assert attn_factor == (None if factor is None else pytest.approx(factor, rel=1e-6))


def test_tied_embedding_and_dense_layers_anywhere(tmp_path: Path) -> None:
    kinds = ["sparse", "dense", "sparse", "dense"]
    config, weights = write_checkpoint(
        tmp_path / "m", dialect="5.x", num_hidden_layers=4, mlp_layer_types=kinds, tie_word_embeddings=True
    )
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="f32"))
    assert set(tensors(tmp_path / "out.gguf")) == set(gguf_weights(config, weights))
    assert metadata(tmp_path / "out.gguf")["hy_v3.leading_dense_block_count"] == 0


def test_softmax_routing_without_norm_and_bias(tmp_path: Path) -> None:
    config, weights = write_checkpoint(tmp_path / "m", route_norm=False, moe_router_use_sigmoid=False)
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="f32"))
    keys = metadata(tmp_path / "out.gguf")
    assert (keys["hy_v3.expert_weights_norm"], keys["hy_v3.expert_gating_func"]) == (False, 1)
    assert set(tensors(tmp_path / "out.gguf")) == set(gguf_weights(config, weights))


@pytest.mark.parametrize("kind", ["q4_k", "q8_0", "bf16"])
def test_layout_gives_each_tensor_its_type(tmp_path: Path, kind: str) -> None:
    config, weights = write_checkpoint(tmp_path / "m", dtype="bf16", **WIDE)
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type=kind))
    for name, array in gguf_weights(config, weights).items():
        entry = tensors(tmp_path / "out.gguf")[name]
        if array.ndim == 1 or "ffn_gate_inp" in name:
            wanted = "f32"
        elif kind != "q4_k":
            wanted = kind
        elif "_exps" in name:
            wanted = "q4_k"
        elif name == "token_embd.weight":
            wanted = "f16"
        else:
            wanted = "q8_0"
        if wanted != "f32" and array.shape[-1] % 32 == 0:
            assert entry.type == wanted, name
            stored = encoded(array, "f32" if name.endswith("exp_probs_b") else "bf16")
            assert entry.data == converted(
                stored, "bf16", wanted, array.size // array.shape[-1], array.shape[-1]
            )


def test_overrides(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", **WIDE)
    texts = ["*_exps*=q6_k", r"re:blk\.1\.ffn_down=q8_0", "output.weight=F16", "*nextn.eh_proj*=bf16"]
    options = Options(overrides=tuple(Override.parse(text) for text in texts))
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", options)
    types = {name: entry.type for name, entry in tensors(tmp_path / "out.gguf").items()}
    assert types["blk.1.ffn_gate_exps.weight"] == types["blk.2.ffn_down_exps.weight"] == "q6_k"
    assert types["blk.1.ffn_down_exps.weight"] == "q8_0"
    assert types["output.weight"] == "f16"
    assert types["blk.3.nextn.eh_proj.weight"] == "bf16"
    assert types["blk.3.nextn.enorm.weight"] == types["blk.1.exp_probs_b"] == "f32"


def test_rows_that_blocks_do_not_divide_fall_back(tmp_path: Path) -> None:
    # Experts: gate and up have rows of 64, down of 80.
    write_checkpoint(tmp_path / "m", moe_intermediate_size=80, intermediate_size=40)
    warnings = to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="q4_k"))
    types = {name: entry.type for name, entry in tensors(tmp_path / "out.gguf").items()}
    assert types["blk.1.ffn_gate_exps.weight"] == "q8_0"
    assert types["blk.1.ffn_down_exps.weight"] == "f16"
    assert types["blk.0.ffn_down.weight"] == "f16"
    assert any(
        "blk.1.ffn_gate_exps.weight and 3 more: rows of 64 " in w and w.endswith("as q8_0") for w in warnings
    )
    assert any("rows of 80 " in w and w.endswith("as f16") for w in warnings)


def test_mtp_is_kept_dropped_or_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_hidden_layers=2, **MTP)
    names, counts = {}, {}
    for variant, options in {
        "all": Options(type="f32"),
        "without": Options(type="f32", no_mtp=True),
        "only": Options(type="f32", mtp_only=True),
    }.items():
        out = tmp_path / f"{variant}.gguf"
        to_gguf(tmp_path / "m", out, options)
        names[variant] = tensors(out)
        keys = metadata(out)
        counts[variant] = (keys["hy_v3.block_count"], keys["hy_v3.nextn_predict_layers"])
    assert counts == {"all": (3, 1), "without": (2, 0), "only": (3, 1)}
    ends = {"token_embd.weight", "output_norm.weight", "output.weight"}
    mtp = {name for name in names["all"] if name.startswith("blk.2.")}
    assert set(names["without"]) == set(names["all"]) - mtp
    assert set(names["only"]) == mtp | ends
    for variant in ("without", "only"):
        assert names[variant] == {name: names["all"][name] for name in names[variant]}


def test_mtp_that_is_declared_but_stripped(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_hidden_layers=2)
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_nextn_predict_layers": 1}))
    warnings = to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    assert [w for w in warnings if "MTP" in w and "none" in w]
    keys = metadata(tmp_path / "out.gguf")
    assert (keys["hy_v3.block_count"], keys["hy_v3.nextn_predict_layers"]) == (2, 0)


def test_mtp_that_the_config_does_not_mention(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", num_hidden_layers=2, **MTP)
    path = tmp_path / "m" / "config.json"
    values = json.loads(path.read_text())
    del values["num_nextn_predict_layers"]
    path.write_text(json.dumps(values))
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    assert metadata(tmp_path / "out.gguf")["hy_v3.nextn_predict_layers"] == 1


def test_copy_keeps_the_matrices_types(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", dtype="bf16")
    to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options(type="copy"))
    types = {name: entry.type for name, entry in tensors(tmp_path / "out.gguf").items()}
    assert types["blk.1.ffn_gate_exps.weight"] == types["token_embd.weight"] == "bf16"
    assert types["output_norm.weight"] == types["blk.1.exp_probs_b"] == "f32"


def test_a_split_checkpoint_conversion_holds_the_same(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", **MTP)
    to_gguf(tmp_path / "m", tmp_path / "one.gguf", Options(type="q8_0"))
    written = convert(tmp_path / "m", tmp_path / "s.gguf", Options(type="q8_0", split_max_size=100_000))
    assert len(written) > 3
    assert [path.name for path in written] == [
        f"s-{n + 1:05d}-of-{len(written):05d}.gguf" for n in range(len(written))
    ]
    assert all(path.stat().st_size <= 100_000 for path in written)
    assert tensors(written[0]) == tensors(tmp_path / "one.gguf")


def test_optional_files_may_be_missing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m")
    for name in ("generation_config.json", "chat_template.jinja"):
        (tmp_path / "m" / name).unlink()
    warnings = to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    keys = metadata(tmp_path / "out.gguf")
    assert "tokenizer.chat_template" not in keys
    assert not [key for key in keys if key.startswith("general.sampling")]
    assert [w for w in warnings if "no chat template" in w]


def test_threads_change_nothing(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", **WIDE)
    outs = []
    for threads in (1, 2, 5):
        outs.append(tmp_path / f"{threads}.gguf")
        to_gguf(tmp_path / "m", outs[-1], Options(), threads=threads)
    assert outs[0].read_bytes() == outs[1].read_bytes() == outs[2].read_bytes()


def test_flags_of_added_tokens_are_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"][0] |= {"lstrip": True, "normalized": False}
    name = content["added_tokens"][0]["content"]
    path.write_text(json.dumps(content))
    warnings = to_gguf(tmp_path / "m", tmp_path / "out.gguf", Options())
    assert [w for w in warnings if f"'lstrip' of {name!r}" in w]
    assert not [w for w in warnings if "rstrip" in w]
