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
Shapes = dict[str, tuple[int, ...]]
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

# The published models, for make_config.
HY3: dict[str, Any] = {
    "vocab_size": 120832,
    "hidden_size": 4096,
    "intermediate_size": 13312,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 192,
    "num_experts_per_tok": 8,
    "num_shared_experts": 1,
    "moe_intermediate_size": 1536,
    "max_position_embeddings": 262144,
}
HY_MT2: dict[str, Any] = HY3 | {
    "hidden_size": 2048,
    "intermediate_size": 6912,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "moe_intermediate_size": 768,
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


def hub_shapes(config: dict[str, Any]) -> Shapes:
    """Every tensor in hub names, the order of the forward pass."""
    hidden, d = config["hidden_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * d, config["num_key_value_heads"] * d
    shapes: Shapes = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}

    def ffn(at: str, width: int) -> None:
        shapes[f"{at}.gate_proj.weight"] = shapes[f"{at}.up_proj.weight"] = (width, hidden)
        shapes[f"{at}.down_proj.weight"] = (hidden, width)

    n_layers = config["num_hidden_layers"]
    kinds = config["mlp_layer_types"] + ["sparse"] * config["num_nextn_predict_layers"]
    for layer, kind in enumerate(kinds):
        at = f"model.layers.{layer}."
        shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = (hidden,)
        for name, shape in {"q": (q, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, q)}.items():
            shapes[f"{at}self_attn.{name}_proj.weight"] = shape
        shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = (d,)
        if kind == "dense":
            ffn(at + "mlp", config["intermediate_size"])
        else:
            shapes[at + "mlp.router.gate.weight"] = (config["num_experts"], hidden)
            shapes[at + "mlp.expert_bias"] = (config["num_experts"],)
            ffn(at + "mlp.shared_mlp", config["moe_intermediate_size"] * config["num_shared_experts"])
            for expert in range(config["num_experts"]):
                ffn(f"{at}mlp.experts.{expert}", config["moe_intermediate_size"])
        if layer >= n_layers:
            shapes[at + "eh_proj.weight"] = (hidden, 2 * hidden)
            for name in ("enorm", "hnorm", "final_layernorm"):
                shapes[f"{at}{name}.weight"] = (hidden,)
    shapes["model.norm.weight"] = (hidden,)
    shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


PARTS = {  # of a layer: hub names and GGUF names
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
for _kind in ("gate", "up", "down"):
    PARTS[f"mlp.{_kind}_proj"] = f"ffn_{_kind}"
    PARTS[f"mlp.shared_mlp.{_kind}_proj"] = f"ffn_{_kind}_shexp"


def gguf_name(hub: str) -> tuple[str, int | None]:
    """The GGUF name, and for one of a layer's experts its number in the stack of that name."""
    stem = hub.removesuffix(".weight")
    ends = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    if stem in ends:
        return ends[stem] + ".weight", None
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    if part == "mlp.expert_bias":  # the bare name is the one that llama.cpp reads as well
        return f"blk.{layer}.exp_probs_b", None
    if part.startswith("mlp.experts."):
        e, kind = part.removeprefix("mlp.experts.").split(".")
        return f"blk.{layer}.ffn_{kind.removesuffix('_proj')}_exps.weight", int(e)
    return f"blk.{layer}.{PARTS[part]}.weight", None


def gguf_weights(config: dict[str, Any], weights: Weights) -> Weights:
    """The same arrays under GGUF names, the experts of a layer stacked [E, out, in]."""
    out: Weights = {}
    stacks: dict[str, dict[int, np.ndarray]] = {}
    for hub, array in weights.items():
        name, expert = gguf_name(hub)
        if expert is None:
            out[name] = array
        else:
            stacks.setdefault(name, {})[expert] = array
    for name, experts in stacks.items():
        out[name] = np.stack([experts[e] for e in range(len(experts))])
    return out


def fused(parts: Weights) -> Weights:
    """Arrays under GGUF names, with attn_qkv and ffn_gate_up_exps in place of their parts."""
    out = dict(parts)
    for name in parts:
        at, _, part = name.rpartition(".attn_q.")
        if part == "weight":
            qkv = [out.pop(f"{at}.attn_{one}.weight") for one in "qkv"]
            out[f"{at}.attn_qkv.weight"] = np.concatenate(qkv)
        at, _, part = name.rpartition(".ffn_gate_exps.")
        if part == "weight":
            pair = [out.pop(f"{at}.ffn_{one}_exps.weight") for one in ("gate", "up")]
            out[f"{at}.ffn_gate_up_exps.weight"] = np.concatenate(pair, axis=1)
    return out


def gguf_shapes(config: dict[str, Any]) -> Shapes:
    """Of every tensor in GGUF names, rows first; the order of the forward pass."""
    out: Shapes = {}
    for hub, shape in hub_shapes(config).items():
        name, expert = gguf_name(hub)
        out[name] = shape if expert is None else (expert + 1, *shape)
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
    return write_parts(path, config, gguf_weights(config, weights), encode)


def write_parts(path: Path, config: dict[str, Any], parts: Weights, encode: Encode) -> Path:
    """Of arrays under GGUF names: all of a model's, or what a test leaves of them."""
    tensors = [(name, array.shape, *encode(name, array)) for name, array in parts.items()]
    return write_gguf(path, gguf_metadata(config), tensors)


def make_tokens(config: dict[str, Any], n: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, config["vocab_size"], n).tolist()
