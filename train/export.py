"""The checkpoint as a hub directory: config.json, model.safetensors, tokenizer and template files, generation
config.

`transformers` writes the trunk in the hub layout; it knows no MTP, so those tensors are added here, as the
layer after the last one.

    python -m train.export --state RUN/state.pt --out DIR
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import HYV3ForCausalLM

from train import template, tokenizer
from train.model import MTP, HY3Tiny, make_config


def build(tok: Tokenizer, seed: int = 0) -> HY3Tiny:
    ids = [tok.token_to_id(t) for t in (template.BOS, template.EOS, template.PAD, template.END_OF_DOCUMENT)]
    return HY3Tiny(make_config(*ids), seed)


def mtp_tensors(mtp: MTP, layer: int) -> dict[str, Tensor]:
    """The MTP layer in the hub layout: experts one by one, the hub's names for router, bias and shared
    expert.
    """
    block = {name: value for name, value in mtp.block.state_dict().items() if ".experts." not in name}
    moe: Any = mtp.block.mlp
    for e in range(moe.gate.num_experts):
        gate, up = moe.experts.gate_up_proj[e].detach().chunk(2)
        for part, value in (("gate", gate), ("up", up), ("down", moe.experts.down_proj[e].detach())):
            block[f"mlp.experts.{e}.{part}_proj.weight"] = value
    renamed = {
        name.replace("mlp.gate.weight", "mlp.router.gate.weight")
        .replace("mlp.e_score_correction_bias", "mlp.expert_bias")
        .replace("mlp.shared_experts.", "mlp.shared_mlp."): value
        for name, value in block.items()
    }
    for glue in ("eh_proj", "enorm", "hnorm", "final_layernorm"):
        renamed[f"{glue}.weight"] = getattr(mtp, glue).weight.detach()
    return {f"model.layers.{layer}.{name}": value.contiguous() for name, value in renamed.items()}


def export(model: HY3Tiny, tok: Tokenizer, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(tok, out)
    model.trunk.save_pretrained(out)
    path = out / "model.safetensors"
    tensors = load_file(path) | mtp_tensors(model.mtp, model.config.num_hidden_layers)
    save_file(tensors, path, metadata={"format": "pt"})
    ends = [template.EOS, template.END_OF_TURN, template.END_OF_SENTENCE, template.END_OF_DOCUMENT]
    generation = {
        "bos_token_id": tok.token_to_id(template.BOS),
        "eos_token_id": [tok.token_to_id(end) for end in ends],
        "pad_token_id": tok.token_to_id(template.PAD),
        "do_sample": False,
        "temperature": 0.0,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def load(path: Path) -> HY3Tiny:
    """A checkpoint directory back as a model; the inverse of `export`."""
    tok = Tokenizer.from_file(str(path / "tokenizer.json"))
    model = build(tok)
    model.trunk = HYV3ForCausalLM.from_pretrained(path, dtype=torch.float32)
    tensors = load_file(path / "model.safetensors")
    own = mtp_tensors(model.mtp, model.config.num_hidden_layers)
    for name, value in own.items():
        value.copy_(tensors[name])
    mlp: Any = model.mtp.block.mlp
    experts = mlp.experts
    prefix = f"model.layers.{model.config.num_hidden_layers}.mlp.experts"
    with torch.no_grad():
        for e in range(experts.num_experts):
            gate, up, down = (tensors[f"{prefix}.{e}.{part}_proj.weight"] for part in ("gate", "up", "down"))
            experts.gate_up_proj[e].copy_(torch.cat((gate, up)))
            experts.down_proj[e].copy_(down)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", type=Path, help="a run's state.pt; without it the random initial weights are written"
    )
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tok = tokenizer.train()
    model = build(tok)
    if args.state:
        model.load_state_dict(torch.load(args.state, weights_only=True)["model"])
    export(model, tok, args.out)


if __name__ == "__main__":
    main()
