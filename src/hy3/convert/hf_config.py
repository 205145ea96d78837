"""config.json of a Hugging Face checkpoint, in both dialects: dimensions, and the GGUF keys that describe the
model.

The 4.57 dialect has `rope_theta`, `rope_scaling`, `first_k_dense_replace`, `expert_hidden_dim`, `qk_norm`,
`route_norm`, `moe_router_*`; the 5.x dialect `rope_parameters`, `mlp_layer_types`, `num_local_experts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hy3.convert.shapes import Model
from hy3.convert.source import Entry
from hy3.errors import Hy3Error

ARCHITECTURE = "hy_v3"
DEFAULT_THETA = 11_158_840.0  # transformers' HYV3Config.default_theta: a config may leave it out
CHECK = "Check that this is a Hy3 checkpoint, and download config.json again"


class Config:
    """Typed access to the keys; `null` counts as absent."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def wrong(self, what: str, hint: str = CHECK) -> Hy3Error:
        return Hy3Error(f"{self.path}: {what}", hint)

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def integer(self, key: str, otherwise: int | None = None, least: int = 1) -> int:
        value = self.values.get(key)
        if value is None:
            if otherwise is None:
                raise self.wrong(f"'{key}' is missing")
            return otherwise
        if type(value) is not int or not least <= value < 2**31:
            raise self.wrong(f"'{key}' is {value!r}, an integer from {least} was expected")
        return value

    def number(self, key: str, otherwise: float | None = None) -> float:
        return self.checked_number(key, self.values.get(key), otherwise)

    def checked_number(self, key: str, value: Any, otherwise: float | None = None) -> float:
        if value is None:
            if otherwise is None:
                raise self.wrong(f"'{key}' is missing")
            return otherwise
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            raise self.wrong(f"'{key}' is {value!r}, a positive number was expected")
        return float(value)

    def flag(self, key: str, otherwise: bool) -> bool:
        value = self.values.get(key)
        if value is None:
            return otherwise
        if type(value) is not bool:
            raise self.wrong(f"'{key}' is {value!r}, true or false was expected")
        return value

    def same(self, *keys: str) -> str:
        """The first of several names for one number that is there; all that are must agree."""
        present = [key for key in keys if self.has(key)]
        if len({self.values[key] for key in present}) > 1:
            raise self.wrong(
                " and ".join(f"'{key}' {self.values[key]}" for key in present) + " contradict each other"
            )
        return present[0] if present else keys[0]


def check_kind(config: Config) -> None:
    """Refuses what is not a Hy3 model, or is one in a form that cannot be converted."""
    model_type = config.values.get("model_type")
    if model_type != ARCHITECTURE:
        raise config.wrong(
            f"model_type is {model_type!r}, not '{ARCHITECTURE}'",
            "Only Hy3 models (Hy3, Hy-MT2) can be converted",
        )
    quantization = config.values.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise config.wrong(
            f"the weights are quantized (quantization_config: {method}); FP8 and other quantized checkpoints "
            "are not supported yet",
            "Convert the BF16 checkpoint",
        )
    for key, hy3 in {"attention_bias": False, "mlp_bias": False, "qk_norm": True}.items():
        if config.flag(key, hy3) is not hy3:
            raise config.wrong(f"'{key}' is {str(not hy3).lower()}, which no Hy3 model has", "")
    activation = config.values.get("hidden_act") or "silu"
    if activation != "silu":
        raise config.wrong(f"'hidden_act' is {activation!r}, Hy3 models have 'silu'")


def declared_mtp(config: Config) -> int | None:
    """How many MTP layers the config speaks of; None when it does not."""
    key = "num_nextn_predict_layers"
    return config.integer(key, least=0) if config.has(key) else None


def read_model(config: Config, n_mtp: int) -> Model:
    n_layers = config.integer("num_hidden_layers")
    sparse = _sparse(config, n_layers) + (True,) * n_mtp
    experts = any(sparse)
    n_experts = config.integer(config.same("num_experts", "num_local_experts")) if experts else 0
    n_used = config.integer("num_experts_per_tok") if experts else 0
    if n_used > n_experts:
        raise config.wrong(f"'num_experts_per_tok' {n_used} is more than 'num_experts' {n_experts}")
    n_shared = config.integer("num_shared_experts", 1, least=0) if experts else 0
    expert_ffn = config.integer(config.same("moe_intermediate_size", "expert_hidden_dim")) if experts else 0
    n_heads, n_kv_heads = config.integer("num_attention_heads"), config.integer("num_key_value_heads")
    if n_heads % n_kv_heads:
        raise config.wrong(
            f"'num_attention_heads' {n_heads} is no multiple of 'num_key_value_heads' {n_kv_heads}"
        )
    ffn = config.integer("intermediate_size", None if not all(sparse) else 0)
    n_blocks = n_layers + n_mtp
    return Model(
        n_layers=n_layers,
        n_mtp=n_mtp,
        hidden=config.integer("hidden_size"),
        vocab=config.integer("vocab_size"),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=config.integer("head_dim"),
        n_experts=n_experts,
        n_experts_used=n_used,
        n_shared_experts=n_shared,
        ffn=(ffn,) * n_blocks,
        expert_ffn=(expert_ffn,) * n_blocks,
        shared_ffn=expert_ffn * n_shared,
        sparse=sparse,
        tied=config.flag("tie_word_embeddings", False),
        selection_bias=config.flag("moe_router_enable_expert_bias", True),
    )


def _sparse(config: Config, n_layers: int) -> tuple[bool, ...]:
    leading = (
        config.integer("first_k_dense_replace", least=0) if config.has("first_k_dense_replace") else None
    )
    types = config.values.get("mlp_layer_types")
    if types is None:
        dense = 1 if leading is None else leading  # transformers: the first layer dense, unless it is told
        return tuple(layer >= dense for layer in range(n_layers))
    if not isinstance(types, list) or not all(kind in ("dense", "sparse") for kind in types):
        raise config.wrong(f"'mlp_layer_types' is {types!r}, a list of 'dense' and 'sparse' was expected")
    if len(types) != n_layers:
        raise config.wrong(f"'mlp_layer_types' has {len(types)} entries for {n_layers} layers")
    sparse = tuple(kind == "sparse" for kind in types)
    if leading is not None and leading != _leading_dense(sparse):
        raise config.wrong(f"'first_k_dense_replace' {leading} and 'mlp_layer_types' contradict each other")
    return sparse


def _leading_dense(sparse: tuple[bool, ...]) -> int:
    return sparse.index(True) if True in sparse else len(sparse)


def model_metadata(config: Config, model: Model) -> list[Entry]:
    """The keys of the architecture, without the counts of blocks (they depend on what is written)."""
    p = ARCHITECTURE + "."
    entries: list[Entry] = [
        (p + "context_length", "u32", config.integer("max_position_embeddings")),
        (p + "embedding_length", "u32", model.hidden),
        (p + "feed_forward_length", "u32", model.ffn[0]),
        (p + "attention.head_count", "u32", model.n_heads),
        (p + "attention.head_count_kv", "u32", model.n_kv_heads),
        (p + "attention.key_length", "u32", model.head_dim),
        (p + "attention.value_length", "u32", model.head_dim),
        (p + "attention.layer_norm_rms_epsilon", "f32", config.number("rms_norm_eps", 1e-5)),
        (p + "rope.dimension_count", "u32", model.head_dim),
    ]
    entries += _rope(config)
    # llama.cpp requires this one even of a model without experts.
    entries.append((p + "expert_feed_forward_length", "u32", model.expert_ffn[0]))
    entries.append((p + "leading_dense_block_count", "u32", _leading_dense(model.sparse[: model.n_layers])))
    if model.n_experts:
        sigmoid = config.flag("moe_router_use_sigmoid", True)
        entries += [
            (p + "expert_count", "u32", model.n_experts),
            (p + "expert_used_count", "u32", model.n_experts_used),
            (p + "expert_shared_count", "u32", model.n_shared_experts),
            (p + "expert_shared_feed_forward_length", "u32", model.shared_ffn),
            (p + "expert_weights_norm", "bool", config.flag("route_norm", True)),
            (p + "expert_weights_scale", "f32", config.number("router_scaling_factor")),
            (p + "expert_gating_func", "u32", 2 if sigmoid else 1),
        ]
    return entries


@dataclass(frozen=True)
class Yarn:
    factor: float
    original_ctx: int
    attention_factor: float | None  # None: the usual 1 + 0.1 ln(factor)
    beta_fast: float
    beta_slow: float


def _rope(config: Config) -> list[Entry]:
    values = _rope_values(config)
    theta = config.checked_number(
        "rope_theta", values.get("rope_theta", config.values.get("rope_theta")), DEFAULT_THETA
    )
    p = ARCHITECTURE + ".rope."
    entries: list[Entry] = [(p + "freq_base", "f32", theta)]
    if config.checked_number("partial_rotary_factor", values.get("partial_rotary_factor"), 1.0) != 1.0:
        raise config.wrong("'partial_rotary_factor' is not 1, which no Hy3 model has", "")
    kind = values.get("rope_type", values.get("type")) or "default"
    if kind == "default":
        return entries
    if kind != "yarn":
        raise config.wrong(f"RoPE scaling of type {kind!r} is not supported", "'default' and 'yarn' are")
    yarn = _yarn(config, values)
    entries += [
        (p + "scaling.type", "str", "yarn"),
        (p + "scaling.factor", "f32", yarn.factor),
        (p + "scaling.original_context_length", "u32", yarn.original_ctx),
        (p + "scaling.yarn_beta_fast", "f32", yarn.beta_fast),
        (p + "scaling.yarn_beta_slow", "f32", yarn.beta_slow),
    ]
    if yarn.attention_factor is not None:
        # Readers multiply what stands here onto 1 + 0.1 ln(factor) (llama.cpp's convention).
        usual = 1.0 + 0.1 * math.log(yarn.factor)
        entries.append((p + "scaling.attn_factor", "f32", yarn.attention_factor / usual))
    return entries


def _rope_values(config: Config) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        values = config.values.get(key)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise config.wrong(f"'{key}' is {values!r}, an object was expected")
        merged.update({name: value for name, value in values.items() if value is not None})
    return merged


def _yarn(config: Config, values: dict[str, Any]) -> Yarn:
    """As transformers' _compute_yarn_parameters understands the keys."""
    ctx = config.integer("max_position_embeddings")
    original = values.get(
        "original_max_position_embeddings", config.values.get("original_max_position_embeddings")
    )
    original_ctx = ctx if original is None else original
    if type(original_ctx) is not int or original_ctx < 1:
        raise config.wrong(
            f"'original_max_position_embeddings' is {original!r}, a positive integer was expected"
        )
    factor = config.checked_number("factor", values.get("factor"), ctx / original_ctx)
    if factor < 1:
        raise config.wrong(f"the YaRN 'factor' is {factor}, at least 1 was expected")
    if values.get("truncate", True) is not True:
        raise config.wrong("YaRN with 'truncate' false is not supported", "")
    attention = values.get("attention_factor")
    if attention is not None:
        attention = config.checked_number("attention_factor", attention)
    elif values.get("mscale") and values.get("mscale_all_dim"):
        attention = _mscale(factor, config, values, "mscale") / _mscale(
            factor, config, values, "mscale_all_dim"
        )
    return Yarn(
        factor=factor,
        original_ctx=original_ctx,
        attention_factor=attention,
        beta_fast=config.checked_number("beta_fast", values.get("beta_fast"), 32.0),
        beta_slow=config.checked_number("beta_slow", values.get("beta_slow"), 1.0),
    )


def _mscale(factor: float, config: Config, values: dict[str, Any], key: str) -> float:
    return 1.0 + 0.1 * config.checked_number(key, values[key]) * math.log(factor)
