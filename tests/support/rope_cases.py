"""RoPE tables to compare: name -> (head_dim, context the model was trained at, rope_parameters but for the
type and that context)."""

from pathlib import Path
from typing import Any

from support.random_hy3 import in_type, make_config, make_weights, write_model

import hy3core

HY3 = {"rope_theta": 11158840.0}

CASES: dict[str, tuple[int, int, dict[str, Any]]] = {
    "plain": (128, 262144, HY3),
    "hy3 x2": (128, 262144, HY3 | {"factor": 2.0}),
    "hy3 x4": (128, 262144, HY3 | {"factor": 4.0}),
    "hy3 x8": (128, 262144, HY3 | {"factor": 8.0}),
    "betas and attention": (
        128,
        262144,
        HY3 | {"factor": 4.0, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.5},
    ),
    "small": (64, 512, {"rope_theta": 10000.0, "factor": 3.5}),
    # Where nothing turns once within so few positions, the ends of the ramp cross, or meet.
    "crossing": (64, 4, {"rope_theta": 10000.0, "factor": 8.0}),
    "meeting": (64, 6, {"rope_theta": 10000.0, "factor": 8.0}),
}


def open_model(folder: Path, name: str) -> hy3core.Model:
    """A model without YaRN, opened with what the case asks for."""
    head_dim, ctx, rope = CASES[name]
    config = make_config(
        head_dim=head_dim,
        max_position_embeddings=ctx,
        rope_parameters={"rope_type": "default", "rope_theta": rope["rope_theta"]},
    )
    path = write_model(folder / "model.gguf", config, make_weights(config, seed=1), in_type("f16"))
    options = {f"rope_{key}": value for key, value in rope.items() if key != "rope_theta"}
    return hy3core.Model(str(path), **options)
