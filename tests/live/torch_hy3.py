"""A `transformers` HYV3ForCausalLM in float32 with the weights of support/random_hy3.py, and its checkpoint
on disk.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support.numpy_hy3 import Result, Routing
from support.random_hy3 import MERGES, SPECIALS, Weights, vocabulary
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import HYV3Config, HYV3ForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.hy_v3.modeling_hy_v3 import HYV3MoE, HYV3RotaryEmbedding

PATTERNS = (  # the published pre-tokenizer of the Hunyuan family
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
)


def make_model(config: dict[str, Any], weights: Weights) -> HYV3ForCausalLM:
    """Attention and experts in eager mode: the formulas as they stand, and no demands on widths."""
    tokens, _ = vocabulary(config["vocab_size"])
    ids = {key: tokens.index(SPECIALS[key]) for key in ("bos_token_id", "eos_token_id")}
    eager = HYV3Config(**config, **ids, attn_implementation="eager", experts_implementation="eager")
    model = HYV3ForCausalLM(eager).float().eval()
    missing, unexpected = model.load_state_dict(packed(config, weights), strict=False)
    tied = ["lm_head.weight"] if config["tie_word_embeddings"] else []
    assert not unexpected and set(missing) <= set(tied), (missing, unexpected)
    model.tie_weights()
    return model


def packed(config: dict[str, Any], weights: Weights) -> dict[str, torch.Tensor]:
    """The trunk's weights under the class's own parameter names (the 5.x layout)."""
    past = f"model.layers.{config['num_hidden_layers']}."
    out = {
        rename(name): torch.from_numpy(array)
        for name, array in weights.items()
        if not name.startswith(past) and ".experts." not in name
    }
    for layer, kind in enumerate(config["mlp_layer_types"]):
        if kind == "sparse":
            out |= packed_experts(config, weights, layer)
    return out


def rename(name: str) -> str:
    name = name.replace("mlp.router.gate.", "mlp.gate.").replace("mlp.shared_mlp.", "mlp.shared_experts.")
    return name.replace("mlp.expert_bias", "mlp.e_score_correction_bias")


def packed_experts(config: dict[str, Any], weights: Weights, layer: int) -> dict[str, torch.Tensor]:
    name = f"model.layers.{layer}.mlp.experts."

    def stack(kind: str) -> torch.Tensor:
        parts = [weights[f"{name}{e}.{kind}_proj.weight"] for e in range(config["num_experts"])]
        return torch.from_numpy(np.stack(parts))

    return {
        name + "gate_up_proj": torch.cat([stack("gate"), stack("up")], dim=1),
        name + "down_proj": stack("down"),
    }


def save_checkpoint(model: HYV3ForCausalLM, config: dict[str, Any], weights: Weights, folder: Path) -> None:
    """save_pretrained's own files; where the config has an MTP layer, a second shard with its tensors, hub
    names.
    """
    model.save_pretrained(folder)
    save_tokenizer(config["vocab_size"], folder)
    if config["num_nextn_predict_layers"]:
        past = f"model.layers.{config['num_hidden_layers']}."
        mtp = {name: torch.from_numpy(array) for name, array in weights.items() if name.startswith(past)}
        first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
        (folder / "model.safetensors").rename(folder / first)
        save_file(mtp, folder / second, metadata={"format": "pt"})
        saved = dict.fromkeys(saved_names(folder / first), first) | dict.fromkeys(mtp, second)
        index = {"metadata": {"total_size": 0}, "weight_map": saved}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def saved_names(path: Path) -> list[str]:
    with safe_open(path, "pt") as file:
        return list(file.keys())


def save_tokenizer(vocab_size: int, folder: Path) -> None:
    """The vocabulary of random_hy3 as tokenizer.json, padding rows left out as published checkpoints do."""
    tokens, types = vocabulary(vocab_size)
    ordinary = {token: i for i, token in enumerate(tokens) if types[i] == 1}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in MERGES)]
    tokenizer = Tokenizer(models.BPE(ordinary, merges))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in SPECIALS.values()])
    tokenizer.save(str(folder / "tokenizer.json"))


def convert(checkpoint: Path, gguf: Path) -> Path:
    """`hy3 convert CHECKPOINT -o GGUF -t f32`, in this process."""
    from hy3.cli import main

    main(["convert", str(checkpoint), "-o", str(gguf), "-t", "f32"], standalone_mode=False)
    return gguf


@torch.no_grad()
def forward(model: HYV3ForCausalLM, tokens: list[int]) -> Result:
    """Logits and post-norm hidden states of every position, and every sparse layer's choice (by hooks)."""
    routing: dict[int, Routing] = {}
    hooks = [
        layer.mlp.gate.register_forward_hook(watch_router(layer.mlp, index, routing))
        for index, layer in enumerate(model.model.layers)
        if isinstance(layer.mlp, HYV3MoE)
    ]
    try:
        hidden = model.model(input_ids=torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
        return Result(model.lm_head(hidden).numpy(), hidden.numpy(), routing)
    finally:
        for hook in hooks:
            hook.remove()


def watch_router(moe: HYV3MoE, index: int, routing: dict[int, Routing]) -> Any:
    def hook(gate: Any, args: Any, out: tuple[torch.Tensor, ...]) -> None:
        ranked = (torch.sigmoid(out[0]) + moe.e_score_correction_bias).sort(dim=-1, descending=True).values
        k = gate.top_k
        margin = (
            ranked[:, k - 1] - ranked[:, k] if k < ranked.shape[1] else torch.full((len(ranked),), torch.inf)
        )
        routing[index] = Routing(out[2].sort(dim=-1).values.numpy(), margin.numpy())

    return hook


def rope_table(head_dim: int, ctx: int, rope: dict[str, Any]) -> tuple[np.ndarray, float]:
    """The inverse frequencies and attention factor of `transformers`: plain without a factor, else YaRN for a
    model trained at `ctx`.
    """
    if "factor" not in rope:
        config = HYV3Config(head_dim=head_dim, rope_parameters={"rope_type": "default", **rope})
        inv_freq, factor = HYV3RotaryEmbedding.compute_default_rope_parameters(config)
    else:
        parameters = {"rope_type": "yarn", "original_max_position_embeddings": ctx, **rope}
        config = HYV3Config(head_dim=head_dim, rope_parameters=parameters)
        inv_freq, factor = ROPE_INIT_FUNCTIONS["yarn"](config, device=None)
    return inv_freq.numpy(), factor
