"""Random Hugging Face checkpoints on disk: both tensor layouts, both config dialects, sharded or in one file.

    config, weights = write_checkpoint(path, layout="packed", dialect="5.x", shards=3, hidden_size=96)

The safetensors files are written with NumPy alone, so that the product's reader is compared with something
else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from support.random_hy3 import MERGES, SPECIALS, Weights, make_config, make_weights, vocabulary

TAGS = ["<think:opensource>", "</think:opensource>"]  # added tokens that are not special
SPLITS = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
PACKED_NAMES = {
    ".mlp.router.gate.": ".mlp.gate.",
    ".mlp.expert_bias": ".mlp.e_score_correction_bias",
    ".mlp.shared_mlp.": ".mlp.shared_experts.",
}
DTYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


def bf16(array: np.ndarray) -> np.ndarray:
    """The upper halves of float32 values, rounded to nearest even, as uint16."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def encode(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "bf16":
        return bf16(array).tobytes()
    return array.astype(np.float16 if dtype == "f16" else np.float32).tobytes()


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """tensors: name -> (dtype as safetensors spells it, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, raw in tensors.values():
            file.write(raw)


def pack(weights: Weights) -> Weights:
    """Hub names and experts to the 5.x layout: two tensors hold a layer's experts."""
    out: Weights = {}
    experts: dict[str, dict[tuple[int, str], np.ndarray]] = {}
    for name, array in weights.items():
        at, found, rest = name.partition(".mlp.experts.")
        if found:
            number, part, _ = rest.split(".")
            experts.setdefault(at + found, {})[int(number), part] = array
            continue
        for hub, packed in PACKED_NAMES.items():
            name = name.replace(hub, packed)
        out[name] = array
    for at, parts in experts.items():
        numbers = sorted({number for number, _ in parts})
        out[at + "gate_up_proj"] = np.stack(
            [np.concatenate([parts[n, "gate_proj"], parts[n, "up_proj"]]) for n in numbers]
        )
        out[at + "down_proj"] = np.stack([parts[n, "down_proj"] for n in numbers])
    return out


def config_in(dialect: str, config: dict[str, Any]) -> dict[str, Any]:
    """The config dict (5.x words, as support.random_hy3 has them) as config.json of a dialect has it."""
    out = {"architectures": ["HYV3ForCausalLM"], "hidden_act": "silu", **config}
    out |= {"enable_lm_head_fp32": True, "enable_moe_fp32_combine": True}
    out.setdefault("_name_or_path", "test/random-hy3")
    if dialect == "5.x":
        out["num_local_experts"] = out.pop("num_experts")
        for key in ("route_norm", "moe_router_use_sigmoid"):
            if out.get(key) is True:
                del out[key]  # true is what 5.x takes for granted
        return out
    rope = dict(out.pop("rope_parameters"))
    out["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type", "default")
    out["rope_scaling"] = None if kind == "default" else {"type": kind, **rope}
    types = out.pop("mlp_layer_types")
    out["first_k_dense_replace"] = [*types, "sparse"].index("sparse")
    out["expert_hidden_dim"] = out["moe_intermediate_size"]
    out |= {"qk_norm": True, "moe_router_enable_expert_bias": True}
    return out


def tokenizer_json(size: int, pair_merges: bool = True) -> dict[str, Any]:
    """Bytes, a few merges, special tokens and two tags; rows up to `size` stay without a token."""
    tokens, types = vocabulary(size)
    ordinary = [token for token, kind in zip(tokens, types, strict=True) if kind == 1]
    first = len(ordinary)
    added = [(first + i, text, True) for i, text in enumerate(SPECIALS.values())]
    added += [(first + len(SPECIALS) + i, text, False) for i, text in enumerate(TAGS)]
    split = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in SPLITS
    ]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": text, **flags, "special": special} for i, text, special in added
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*split, bytes_]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(ordinary)},
            "merges": [merge.split(" ") for merge in MERGES] if pair_merges else list(MERGES),
        },
    }


def write_tokenizer(path: Path, size: int, **changes: Any) -> None:
    content = tokenizer_json(size, **changes)
    settings = {
        "bos_token": SPECIALS["bos_token_id"],
        "eos_token": {"content": SPECIALS["eos_token_id"]},
        "pad_token": SPECIALS["padding_token_id"],
    }
    (path / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(settings, ensure_ascii=False), encoding="utf-8")
    (path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")


def write_weights(path: Path, weights: Weights, dtype: str = "f32", shards: int = 1) -> None:
    """The selection biases stay float32 in every dtype, as published checkpoints have them."""

    def stored(name: str, array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
        kind = "f32" if name.endswith("bias") else dtype
        return DTYPES[kind], array.shape, encode(array, kind)

    if shards == 1:
        write_safetensors(path / "model.safetensors", {name: stored(name, a) for name, a in weights.items()})
        return
    weight_map: dict[str, str] = {}
    names = list(weights)
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = names[shard::shards]  # scattered, so that one GGUF tensor comes from several files
        write_safetensors(path / file, {name: stored(name, weights[name]) for name in part})
        weight_map |= dict.fromkeys(part, file)
    total = sum(array.nbytes for array in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def write_checkpoint(
    path: Path,
    *,
    layout: str = "hub",
    dialect: str = "4.57",
    dtype: str = "f32",
    shards: int = 1,
    seed: int = 0,
    **changes: Any,
) -> tuple[dict[str, Any], Weights]:
    """Writes a complete checkpoint; returns the config (5.x words) and the weights under hub names.

    layout: hub or packed; dialect: 4.57 or 5.x; `changes` are config.json's words (support.random_hy3.BASE).
    """
    path.mkdir(parents=True, exist_ok=True)
    config = make_config(**changes)
    weights = make_weights(config, seed)
    write_weights(path, pack(weights) if layout == "packed" else weights, dtype, shards)
    (path / "config.json").write_text(json.dumps(config_in(dialect, config), indent=2))
    (path / "generation_config.json").write_text(
        json.dumps(
            {"do_sample": True, "temperature": 0.7, "top_p": 0.9, "top_k": -1, "repetition_penalty": 1.05}
        )
    )
    write_tokenizer(path, config["vocab_size"])
    return config, weights
