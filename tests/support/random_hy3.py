"""Random small models of the architecture: config dicts, weights under hub names, and the same as a GGUF.

Weights are about 1 / sqrt(fan_in), so that activations keep their size from layer to layer; norm weights
spread over 0.5 to 1.5 and selection biases are not zero, so that leaving one out shows.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from support.gguf_files import write_gguf

Weights = dict[str, np.ndarray]
Encode = Callable[
    [str, np.ndarray], tuple[str, bytes]
]  # (GGUF name, float32 array) -> (type name, raw bytes)

BASE = {
    "model_type": "hy_v3",
    "vocab_size": 301,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 96,
    "router_scaling_factor": 2.826,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 11158840.0},
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "route_norm": True,
    "moe_router_use_sigmoid": True,
}

SPECIALS = {
    "bos_token_id": "<｜hy_begin_of_sentence:opensource｜>",
    "eos_token_id": "<｜hy_eos:opensource｜>",
    "eot_token_id": "<｜hy_end_of_turn:opensource｜>",
    "padding_token_id": "<｜hy_pad:opensource｜>",
}
MERGES = ["t h", "th e", "Ġ a", "i n"]


def make_config(**changes: Any) -> dict[str, Any]:
    """BASE with changes; mlp_layer_types follows num_hidden_layers (first layer dense) unless given."""
    config = BASE | changes
    if "mlp_layer_types" not in changes:
        config["mlp_layer_types"] = ["dense"] + ["sparse"] * (config["num_hidden_layers"] - 1)
    assert len(config["mlp_layer_types"]) == config["num_hidden_layers"]
    return config


def make_weights(config: dict[str, Any], seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    hidden, d, vocab = config["hidden_size"], config["head_dim"], config["vocab_size"]
    w: Weights = {}

    def linear(name: str, out: int, fan_in: int) -> None:
        w[name + ".weight"] = (rng.standard_normal((out, fan_in)) / fan_in**0.5).astype(np.float32)

    def norm(name: str, n: int) -> None:
        w[name + ".weight"] = rng.uniform(0.5, 1.5, n).astype(np.float32)

    def ffn(name: str, width: int) -> None:
        linear(name + ".gate_proj", width, hidden)
        linear(name + ".up_proj", width, hidden)
        linear(name + ".down_proj", hidden, width)

    def block(name: str, sparse: bool) -> None:
        norm(name + ".input_layernorm", hidden)
        norm(name + ".post_attention_layernorm", hidden)
        linear(name + ".self_attn.q_proj", config["num_attention_heads"] * d, hidden)
        linear(name + ".self_attn.k_proj", config["num_key_value_heads"] * d, hidden)
        linear(name + ".self_attn.v_proj", config["num_key_value_heads"] * d, hidden)
        linear(name + ".self_attn.o_proj", hidden, config["num_attention_heads"] * d)
        norm(name + ".self_attn.q_norm", d)
        norm(name + ".self_attn.k_norm", d)
        if not sparse:
            ffn(name + ".mlp", config["intermediate_size"])
            return
        linear(name + ".mlp.router.gate", config["num_experts"], hidden)
        w[name + ".mlp.expert_bias"] = rng.uniform(-0.2, 0.2, config["num_experts"]).astype(np.float32)
        for e in range(config["num_experts"]):
            ffn(f"{name}.mlp.experts.{e}", config["moe_intermediate_size"])
        if config["num_shared_experts"]:
            ffn(name + ".mlp.shared_mlp", config["moe_intermediate_size"] * config["num_shared_experts"])

    # The table is not divided by sqrt(hidden): the residual stream starts at unit size.
    w["model.embed_tokens.weight"] = rng.standard_normal((vocab, hidden)).astype(np.float32)
    for layer, kind in enumerate(config["mlp_layer_types"]):
        block(f"model.layers.{layer}", kind == "sparse")
    norm("model.norm", hidden)
    if config["tie_word_embeddings"]:
        w["model.embed_tokens.weight"] /= np.float32(hidden**0.5)
    else:
        linear("lm_head", vocab, hidden)
    if config["num_nextn_predict_layers"]:
        name = f"model.layers.{config['num_hidden_layers']}"
        block(name, sparse=True)
        linear(name + ".eh_proj", hidden, 2 * hidden)
        for part in ("enorm", "hnorm", "final_layernorm"):
            norm(f"{name}.{part}", hidden)
    return w


def gguf_weights(config: dict[str, Any], weights: Weights) -> Weights:
    """The same arrays under GGUF names, the experts of a layer stacked [E, out, in]."""
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "mlp.router.gate": "ffn_gate_inp",
        "eh_proj": "nextn.eh_proj",
        "enorm": "nextn.enorm",
        "hnorm": "nextn.hnorm",
        "final_layernorm": "nextn.shared_head_norm",
    }
    for kind in ("gate", "up", "down"):
        parts[f"mlp.{kind}_proj"] = f"ffn_{kind}"
        parts[f"mlp.shared_mlp.{kind}_proj"] = f"ffn_{kind}_shexp"

    out: Weights = {}
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for name, array in weights.items():
        stem = name.removesuffix(".weight")
        if stem in ends:
            out[ends[stem] + ".weight"] = array
            continue
        layer, part = stem.removeprefix("model.layers.").split(".", 1)
        if part == "mlp.expert_bias":
            out[f"blk.{layer}.exp_probs_b"] = array
        elif part.startswith("mlp.experts."):
            e, kind = part.removeprefix("mlp.experts.").split(".")
            stacks.setdefault(f"blk.{layer}.ffn_{kind.removesuffix('_proj')}_exps.weight", {})[int(e)] = array
        else:
            out[f"blk.{layer}.{parts[part]}.weight"] = array
    for name, experts in stacks.items():
        out[name] = np.stack([experts[e] for e in range(len(experts))])
    return out


def gguf_metadata(config: dict[str, Any]) -> dict[str, Any]:
    experts = config["moe_intermediate_size"]
    rope = config["rope_parameters"]
    tokens, types = vocabulary(config["vocab_size"])
    keys: dict[str, Any] = {
        "general.architecture": "hy_v3",
        "hy_v3.block_count": config["num_hidden_layers"] + config["num_nextn_predict_layers"],
        "hy_v3.nextn_predict_layers": config["num_nextn_predict_layers"],
        "hy_v3.context_length": config["max_position_embeddings"],
        "hy_v3.embedding_length": config["hidden_size"],
        "hy_v3.feed_forward_length": config["intermediate_size"],
        "hy_v3.attention.head_count": config["num_attention_heads"],
        "hy_v3.attention.head_count_kv": config["num_key_value_heads"],
        "hy_v3.attention.key_length": config["head_dim"],
        "hy_v3.attention.value_length": config["head_dim"],
        "hy_v3.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "hy_v3.rope.dimension_count": config["head_dim"],
        "hy_v3.rope.freq_base": float(rope["rope_theta"]),
        "hy_v3.expert_count": config["num_experts"],
        "hy_v3.expert_used_count": config["num_experts_per_tok"],
        "hy_v3.expert_shared_count": config["num_shared_experts"],
        "hy_v3.expert_feed_forward_length": experts,
        "hy_v3.expert_shared_feed_forward_length": experts * config["num_shared_experts"],
        "hy_v3.expert_weights_norm": config["route_norm"],
        "hy_v3.expert_weights_scale": float(config["router_scaling_factor"]),
        "hy_v3.expert_gating_func": 2 if config["moe_router_use_sigmoid"] else 1,
        "hy_v3.leading_dense_block_count": (config["mlp_layer_types"] + ["sparse"]).index("sparse"),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "hunyuan-dense",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.add_bos_token": False,
    }
    for key, text in SPECIALS.items():
        keys[f"tokenizer.ggml.{key}"] = tokens.index(text)
    if rope.get("rope_type") == "yarn":
        keys["hy_v3.rope.scaling.type"] = "yarn"
        keys["hy_v3.rope.scaling.factor"] = float(rope["factor"])
        keys["hy_v3.rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return keys


def vocabulary(size: int) -> tuple[list[str], list[int]]:
    """Bytes, a few merges, the special tokens, and padding rows up to `size`."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    byte_text = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    tokens = [byte_text[b] for b in range(256)] + [merge.replace(" ", "") for merge in MERGES]
    types = [1] * len(tokens)
    tokens += SPECIALS.values()
    types += [3] * len(SPECIALS)
    assert size >= len(tokens)
    padding = range(len(tokens), size)
    return tokens + [f"[PAD{i}]" for i in padding], types + [5] * len(padding)


def in_type(wanted: str) -> Encode:
    """Matrices as float32 or float16; norms, router and bias always float32."""

    def encode(name: str, array: np.ndarray) -> tuple[str, bytes]:
        small = array.ndim == 1 or "ffn_gate_inp" in name
        dtype = np.float32 if small or wanted == "f32" else np.float16
        return ("f16" if dtype is np.float16 else "f32"), array.astype(dtype).tobytes()

    return encode


def write_model(path: Path, config: dict[str, Any], weights: Weights, encode: Encode) -> Path:
    tensors = []
    for name, array in gguf_weights(config, weights).items():
        type_name, raw = encode(name, array)
        tensors.append((name, array.shape, type_name, raw))
    write_gguf(path, gguf_metadata(config), tensors)
    return path


def make_tokens(config: dict[str, Any], n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, config["vocab_size"], n).tolist()
