"""The whole forward pass in NumPy, written from the formulas so that it can be checked by eye: the tests'
oracle.

Input: a config.json dict (5.x names; see DEFAULTS for what may be left out) and a dict of arrays under the
names and shapes of the hub layout (a linear layer's weight is [out, in]; one tensor an expert). Everything is
computed in `dtype` except the RoPE angles, which are float32 by definition. Shapes: n rows (positions), H
hidden, k experts chosen.

Covers what `transformers` does not: softmax routing, weights that are not normalized, and the MTP layer. A
test that wants a wrong model overrides one method of `Hy3`.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
DEFAULTS = {
    "route_norm": True,
    "moe_router_use_sigmoid": True,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "num_shared_experts": 1,
}


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def inverse_frequencies(config: dict[str, Any]) -> tuple[Array, float]:
    """float32[head_dim / 2] and the factor on cos and sin. YaRN: Peng et al. 2023, as `transformers` computes
    it.
    """
    rope, dim = config["rope_parameters"], config["head_dim"]
    base = rope["rope_theta"]
    inverse = (1 / np.float32(base) ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))).astype(
        np.float32
    )
    if rope.get("rope_type", "default") != "yarn":
        return inverse, 1.0

    factor, original = rope["factor"], rope["original_max_position_embeddings"]

    def dimension(rotations: float) -> float:  # the one that turns this often within the original context
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(rope.get("beta_fast") or 32)), 0)
    high = min(math.ceil(dimension(rope.get("beta_slow") or 1)), dim - 1)
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / ((high - low) or 0.001), 0, 1)
    attention = rope.get("attention_factor") or (0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return (inverse / np.float32(factor) * ramp + inverse * (1 - ramp)).astype(np.float32), attention


@dataclass
class Cache:
    """Keys and values of the rows so far, [rows, kv_heads, head_dim], of one layer."""

    k: Array | None = None
    v: Array | None = None

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        self.k = k if self.k is None else np.concatenate([self.k, k])
        self.v = v if self.v is None else np.concatenate([self.v, v])
        return self.k, self.v


@dataclass
class Routing:
    chosen: Array  # int[n, k], ascending
    margin: Array  # [n]: biased score of the last chosen minus the first rejected; inf when all are chosen


@dataclass
class Result:
    logits: Array  # [n, vocab]
    hidden: Array  # [n, H], post-norm
    routing: dict[int, Routing] = field(default_factory=dict)  # by layer index


class Hy3:
    def __init__(self, config: dict[str, Any], weights: dict[str, Array], dtype: type = np.float64) -> None:
        self.config = DEFAULTS | config
        self.w = {name: array.astype(dtype) for name, array in weights.items()}
        self.dtype = dtype
        self.head_dim = config["head_dim"]
        self.inverse, self.rope_factor = inverse_frequencies(config)
        self.routing: dict[int, Routing] = {}

    # --- the operations

    def linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T

    def norm(self, x: Array, name: str) -> Array:
        mean = np.mean(x * x, axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.dtype(self.config["rms_norm_eps"])) * self.w[name + ".weight"]

    def rope(self, x: Array, positions: Array) -> Array:
        """x [n, heads, head_dim]: dim d turns together with d + head_dim / 2."""
        angles = positions.astype(np.float32)[:, None, None] * self.inverse
        cos = (np.cos(angles) * self.rope_factor).astype(self.dtype)
        sin = (np.sin(angles) * self.rope_factor).astype(self.dtype)
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def attention(self, x: Array, name: str, positions: Array, cache: Cache) -> Array:
        heads, kv_heads = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        n, d = len(x), self.head_dim
        q = self.head_norm(self.linear(x, name + ".q_proj").reshape(n, heads, d), name + ".q_norm")
        k = self.head_norm(self.linear(x, name + ".k_proj").reshape(n, kv_heads, d), name + ".k_norm")
        v = self.linear(x, name + ".v_proj").reshape(n, kv_heads, d)
        k, v = cache.append(self.rope(k, positions), v)
        q = self.rope(q, positions).reshape(
            n, kv_heads, heads // kv_heads, d
        )  # head i reads KV head i / group
        scores = np.einsum("nkgd,mkd->nkgm", q, k) * self.dtype(d**-0.5)
        future = np.arange(len(k))[None, :] > len(k) - n + np.arange(n)[:, None]
        scores = np.where(future[:, None, None, :], -np.inf, scores)
        mixed = np.einsum("nkgm,mkd->nkgd", softmax(scores), v)
        return self.linear(mixed.reshape(n, heads * d), name + ".o_proj")

    def head_norm(self, x: Array, name: str) -> Array:
        return self.norm(x, name)

    def ffn(self, x: Array, name: str) -> Array:
        gate = self.linear(x, name + ".gate_proj")
        return self.linear(gate * sigmoid(gate) * self.linear(x, name + ".up_proj"), name + ".down_proj")

    def scores(self, x: Array, name: str) -> tuple[Array, Array]:
        """Per expert [n, E]: what the chosen are weighed by, and what they are chosen by."""
        logits = self.linear(x, name + ".router.gate")
        s = sigmoid(logits) if self.config["moe_router_use_sigmoid"] else softmax(logits)
        return s, s + self.w[name + ".expert_bias"]

    def moe(self, x: Array, name: str, layer: int) -> Array:
        k = self.config["num_experts_per_tok"]
        s, biased = self.scores(x, name)
        order = np.argsort(-biased, axis=-1, kind="stable")  # equal scores: the lower index first
        chosen = np.sort(order[:, :k], axis=-1)
        ranked = np.take_along_axis(biased, order, axis=-1)
        margin = ranked[:, k - 1] - ranked[:, k] if k < s.shape[1] else np.full(len(x), np.inf)
        self.routing[layer] = Routing(chosen, margin)

        weights = np.take_along_axis(s, chosen, axis=-1)
        if self.config["route_norm"]:
            weights = weights / (weights.sum(axis=-1, keepdims=True) + 1e-20)
        weights = weights * self.dtype(self.config["router_scaling_factor"])

        out = self.ffn(x, name + ".shared_mlp") if self.config["num_shared_experts"] else np.zeros_like(x)
        for e in np.unique(chosen):
            row, slot = np.nonzero(chosen == e)
            out[row] += weights[row, slot, None] * self.ffn(x[row], f"{name}.experts.{e}")
        return out

    def block(self, h: Array, layer: int, positions: Array, cache: Cache, sparse: bool) -> Array:
        name = f"model.layers.{layer}"
        h = h + self.attention(self.norm(h, name + ".input_layernorm"), name + ".self_attn", positions, cache)
        x = self.norm(h, name + ".post_attention_layernorm")
        return h + (self.moe(x, name + ".mlp", layer) if sparse else self.ffn(x, name + ".mlp"))

    def head(self, hidden: Array) -> Array:
        return self.linear(hidden, "model.embed_tokens" if self.config["tie_word_embeddings"] else "lm_head")

    # --- the model

    def forward(self, tokens: Any, positions: Array | None = None) -> Result:
        """positions: what RoPE takes for them."""
        self.routing = {}
        positions = np.arange(len(tokens)) if positions is None else positions
        h = self.w["model.embed_tokens.weight"][np.asarray(tokens)]
        for layer, kind in enumerate(self.config["mlp_layer_types"]):
            h = self.block(h, layer, positions, Cache(), kind == "sparse")
        hidden = self.norm(h, "model.norm")
        return Result(self.head(hidden), hidden, self.routing)

    # --- the MTP layer

    def mtp_input(self, next_tokens: Any, hidden: Array) -> Array:
        name = f"model.layers.{self.config['num_hidden_layers']}"
        e = self.norm(self.w["model.embed_tokens.weight"][np.asarray(next_tokens)], name + ".enorm")
        return self.linear(
            np.concatenate([e, self.norm(hidden, name + ".hnorm")], axis=-1), name + ".eh_proj"
        )

    def mtp(self, next_tokens: Any, hidden: Array, cache: Cache) -> Array:
        """u [n, H] for rows (token t + 1, hidden t) that follow those in the cache; head(u) predicts token t
        + 2.
        """
        layer = self.config["num_hidden_layers"]
        positions = (0 if cache.k is None else len(cache.k)) + np.arange(len(next_tokens))
        u = self.block(self.mtp_input(next_tokens, hidden), layer, positions, cache, sparse=True)
        return self.norm(u, f"model.layers.{layer}.final_layernorm")

    def draft(self, tokens: Any, depth: int) -> list[Array]:
        """Logits of `depth` drafts after tokens[-1], each the greedy continuation of the one before.

        tokens[-1] is not in the context yet: it is the one the model has just chosen.
        """
        cache = Cache()
        u = self.mtp(tokens[1:], self.forward(tokens[:-1]).hidden, cache)[-1:]
        drafts = [self.head(u)[0]]
        while len(drafts) < depth:
            u = self.mtp([int(np.argmax(drafts[-1]))], u, cache)
            drafts.append(self.head(u)[0])
        return drafts
