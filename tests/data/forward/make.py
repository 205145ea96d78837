"""Makes the files beside it: four random models as GGUF and what `transformers` computes with them.

    python tests/data/forward/make.py     (needs torch and transformers; the tests that read the files do not)

NAME.npz holds, for each prompt length L: tokens_L, positions_L (a selection, the last position always among
them), and at those positions logits_L, hidden_L and, per sparse layer l, chosen_L_l; for the models with an
MTP layer also mtp_positions_L and mtp_logits_L, where row t comes from the hidden state of t and token t + 1.
The GGUFs are written by the tests' own writer, not by the product.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import torch  # noqa: E402
from live.reference_mtp import ReferenceMtp  # noqa: E402
from live.torch_hy3 import forward, make_model  # noqa: E402
from support.random_hy3 import in_type, make_config, make_tokens, make_weights, write_model  # noqa: E402

LENGTHS = (1, 2, 63, 64, 65, 300)
KEPT = (0, 1, 31, 61, 62, 63, 64, 130, 255, 256, 298, 299)  # around the sizes that kernels and spans like

# name: (type of the matrices, what differs from random_hy3.BASE)
MODELS = {
    "plain": (
        "f32",
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "moe_intermediate_size": 32},
    ),
    "mtp": (
        "f16",
        {"hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 2,
         "num_key_value_heads": 1, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24,
         "num_nextn_predict_layers": 1},
    ),
    "tied": (
        "f16",
        {"hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2,
         "num_key_value_heads": 2, "mlp_layer_types": ["sparse", "dense", "sparse"], "num_experts": 4,
         "num_experts_per_tok": 4, "num_shared_experts": 2, "moe_intermediate_size": 20,
         "tie_word_embeddings": True},
    ),
    "yarn": (
        "f16",
        {"hidden_size": 56, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 128, "num_experts": 7, "num_experts_per_tok": 1,
         "moe_intermediate_size": 14,
         "rope_parameters": {"rope_type": "yarn", "rope_theta": 11158840.0, "factor": 16.0,
                             "original_max_position_embeddings": 128}},
    ),
}  # fmt: skip


def main() -> None:
    for seed, (name, (type_name, changes)) in enumerate(MODELS.items()):
        config = make_config(**changes)
        weights = make_weights(config, seed)
        if type_name == "f16":  # what the file stores is what the reference computes with
            weights = {
                key: array
                if array.ndim == 1 or "router" in key
                else array.astype(np.float16).astype(np.float32)
                for key, array in weights.items()
            }
        write_model(HERE / f"{name}.gguf", config, weights, in_type(type_name))
        model = make_model(config, weights)
        mtp = ReferenceMtp(model, config, weights) if config["num_nextn_predict_layers"] else None

        out: dict[str, np.ndarray] = {}
        for length in LENGTHS:
            tokens = make_tokens(config, length, seed=1000 * seed + length)
            kept = sorted({p for p in KEPT if p < length} | {length - 1})
            result = forward(model, tokens)
            out[f"tokens_{length}"] = np.array(tokens, np.int32)
            out[f"positions_{length}"] = np.array(kept, np.int32)
            out[f"logits_{length}"] = result.logits[kept]
            out[f"hidden_{length}"] = result.hidden[kept]
            for layer, routing in result.routing.items():
                out[f"chosen_{length}_{layer}"] = routing.chosen[kept].astype(np.int32)
            if mtp and length > 1:
                kept = [p for p in kept if p < length - 1] or [0]
                logits = mtp.teacher_forced(tokens, torch.from_numpy(result.hidden)).numpy()
                out[f"mtp_positions_{length}"] = np.array(kept, np.int32)
                out[f"mtp_logits_{length}"] = logits[kept]
        np.savez_compressed(HERE / f"{name}.npz", **out)


if __name__ == "__main__":
    main()
