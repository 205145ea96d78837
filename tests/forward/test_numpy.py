"""Both CPU backends against the NumPy reference, on what `transformers` cannot compute and on the corners of
a config.

The reference itself is held against transformers in tests/live/test_transformers.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.compare import relative_error
from support.numpy_hy3 import Hy3
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model

import hy3core

TOLERANCE = 1e-4

CONFIGS: dict[str, dict[str, Any]] = {
    "softmax": {"moe_router_use_sigmoid": False},
    "softmax, not normalized": {"moe_router_use_sigmoid": False, "route_norm": False},
    "not normalized": {"route_norm": False},
    "3 shared": {"num_shared_experts": 3, "moe_intermediate_size": 40},
    "no shared": {"num_shared_experts": 0},
    "top 1": {"num_experts_per_tok": 1},
    "top 4 of 5": {"num_experts_per_tok": 4},
    "top 5 of 5": {"num_experts_per_tok": 5},
    "one expert": {"num_experts": 1, "num_experts_per_tok": 1},
    "tied": {"tie_word_embeddings": True, "vocab_size": 289},
    "all dense": {"mlp_layer_types": ["dense"] * 3},
    "all sparse": {"mlp_layer_types": ["sparse"] * 3},
    "dense in the middle": {"mlp_layer_types": ["sparse", "dense", "sparse"]},
    "dense last": {"mlp_layer_types": ["sparse", "sparse", "dense"]},
    "one layer": {"num_hidden_layers": 1, "mlp_layer_types": ["sparse"]},
    "head 64": {"head_dim": 64, "num_attention_heads": 5, "num_key_value_heads": 1},
    "head 96": {"head_dim": 96, "num_attention_heads": 3, "num_key_value_heads": 3},
    "head 128": {"head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 1},
    "head 256": {"head_dim": 256, "num_attention_heads": 2, "num_key_value_heads": 2},
    "odd widths": {"hidden_size": 66, "intermediate_size": 37, "moe_intermediate_size": 19},
    "eps 1e-2": {"rms_norm_eps": 1e-2},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0,
                                 "original_max_position_embeddings": 64}},
    "mtp, softmax": {"num_nextn_predict_layers": 1, "moe_router_use_sigmoid": False, "route_norm": False},
    "mtp, tied": {"num_nextn_predict_layers": 1, "tie_word_embeddings": True, "num_shared_experts": 2},
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
def test_against_numpy(name: str, tmp_path: Path, report: Callable[[str], None]) -> None:
    config = make_config(**CONFIGS[name])
    weights = make_weights(config, seed=list(CONFIGS).index(name))
    path = write_model(tmp_path / "model.gguf", config, weights, in_type("f32"))
    tokens = make_tokens(config, 70, seed=1)
    oracle = Hy3(config, weights)
    expected = oracle.forward(tokens)
    mtp = config["num_nextn_predict_layers"] > 0

    errors = {}
    for backend in ("reference", "cpu"):
        session = hy3core.Model(str(path), backend=backend).session(ctx=128, kv="f32", mtp=mtp)
        logits = session.eval(tokens, logits="all")
        error = max(
            relative_error(logits, expected.logits), relative_error(session.hidden, expected.hidden[-1])
        )
        if mtp:
            following = make_tokens(config, 1, seed=2)
            draft = oracle.draft(tokens + following, depth=1)[0]
            error = max(error, relative_error(session.mtp_logits(following[0]), draft))
        errors[backend] = error
    report(f"NumPy {name}: " + ", ".join(f"{backend} {error:.1e}" for backend, error in errors.items()))
    assert max(errors.values()) < TOLERANCE


def test_equal_scores_choose_the_lower_index(tmp_path: Path) -> None:
    """Two experts share router rows and bias: the first of them is chosen; its weights show it."""
    config = make_config(num_experts=4, num_experts_per_tok=1)
    weights = make_weights(config, seed=3)
    for layer in (1, 2):
        name = f"model.layers.{layer}.mlp."
        weights[name + "router.gate.weight"][:] = weights[name + "router.gate.weight"][2]
        weights[name + "expert_bias"][:] = [-1, 0.25, 0.25, 0.25]
    path = write_model(tmp_path / "model.gguf", config, weights, in_type("f32"))
    tokens = make_tokens(config, 20, seed=1)
    expected = Hy3(config, weights).forward(tokens)
    assert all((routing.chosen == 1).all() for routing in expected.routing.values())
    for backend in ("reference", "cpu"):
        logits = (
            hy3core.Model(str(path), backend=backend).session(ctx=64, kv="f32").eval(tokens, logits="all")
        )
        assert relative_error(logits, expected.logits) < TOLERANCE


def test_experts_override(tmp_path: Path) -> None:
    """Model(experts=k) computes what a config with that k does."""
    config = make_config()
    weights = make_weights(config, seed=4)
    path = write_model(tmp_path / "model.gguf", config, weights, in_type("f32"))
    tokens = make_tokens(config, 20, seed=1)
    expected = Hy3(config | {"num_experts_per_tok": 4}, weights).forward(tokens)
    model = hy3core.Model(str(path), experts=4)
    assert model.config.n_experts_used == 4
    assert (
        relative_error(model.session(ctx=64, kv="f32").eval(tokens, logits="all"), expected.logits)
        < TOLERANCE
    )


def test_rope_factor_override(tmp_path: Path) -> None:
    """Model(rope_factor=f, rope_ctx=c) computes what a YaRN config does."""
    config = make_config()
    weights = make_weights(config, seed=5)
    path = write_model(tmp_path / "model.gguf", config, weights, in_type("f32"))
    tokens = make_tokens(config, 100, seed=1)
    rope = config["rope_parameters"] | {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    expected = Hy3(config | {"rope_parameters": rope}, weights).forward(tokens)
    session = hy3core.Model(str(path), rope_factor=4.0, rope_ctx=32).session(ctx=128, kv="f32")
    assert relative_error(session.eval(tokens, logits="all"), expected.logits) < TOLERANCE
