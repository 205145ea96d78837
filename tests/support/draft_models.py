"""Random models whose MTP layer drafts well: the next token hangs mostly on the last one, through the head
alone, and the MTP layer is made to see the same.
"""

from pathlib import Path
from typing import Any

import numpy as np
from support.random_blocks import in_blocks
from support.random_hy3 import Weights, in_type, make_config, make_weights, write_model


def agreeing_weights(config: dict[str, Any], seed: int, share: float) -> Weights:
    """`share`: how much the decoder blocks add to the residual stream. At 0 every draft is right."""
    weights = make_weights(config, seed)
    hidden = config["hidden_size"]
    for name, array in weights.items():
        if name.endswith(("self_attn.o_proj.weight", "down_proj.weight")):
            array *= np.float32(share)
    mtp = f"model.layers.{config['num_hidden_layers']}"
    weights[f"{mtp}.eh_proj.weight"] = np.eye(hidden, 2 * hidden, dtype=np.float32)
    weights[f"{mtp}.eh_proj.weight"][:, hidden:] = share * 0.5 * np.eye(hidden, dtype=np.float32)
    weights[f"{mtp}.enorm.weight"] = np.ones(hidden, dtype=np.float32)
    weights[f"{mtp}.final_layernorm.weight"] = weights["model.norm.weight"].copy()
    return weights


def write_draft_model(
    path: Path, share: float | None, type_name: str = "f32", seed: int = 70, **changes: Any
) -> Path:
    """share None: the MTP layer is as random as the rest, and next to no draft is right. The type is that of
    the decoder blocks' matrices; what makes the drafts good, embedding, head and eh_proj, stays float32.
    """
    config = make_config(num_nextn_predict_layers=1, **changes)
    weights = make_weights(config, seed) if share is None else agreeing_weights(config, seed, share)
    typed, plain = in_blocks(type_name), in_type("f32")

    def encode(name: str, array: np.ndarray) -> tuple[str, bytes]:
        outside = name in ("token_embd.weight", "output.weight") or "eh_proj" in name
        return (plain if outside else typed)(name, array)

    return write_model(path, config, weights, encode)
