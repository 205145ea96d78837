"""A Hugging Face checkpoint directory as a Source: hub layout or packed 5.x layout, sharded or not.

Each GGUF tensor is looked for under the names of both layouts. `transformers` writes the hub layout; the
packed one holds a layer's experts in two tensors, gate_up_proj [experts, 2 * ffn, hidden] (gate rows first)
and down_proj [experts, hidden, ffn].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hy3.convert import hf_config, tokenizer
from hy3.convert.generation import sampling_metadata
from hy3.convert.safetensors_file import INDEX, SIZES, Stored, read_directory, read_json, some
from hy3.convert.shapes import Model, Tensor
from hy3.convert.source import Entry, FileReader, Run, Source
from hy3.errors import Hy3Error

# GGUF name after `blk.N.` -> checkpoint names after `model.layers.N.`, the hub layout's first.
PLAIN = {
    "attn_norm.weight": ("input_layernorm.weight",),
    "attn_q.weight": ("self_attn.q_proj.weight",),
    "attn_k.weight": ("self_attn.k_proj.weight",),
    "attn_v.weight": ("self_attn.v_proj.weight",),
    "attn_output.weight": ("self_attn.o_proj.weight",),
    "attn_q_norm.weight": ("self_attn.q_norm.weight",),
    "attn_k_norm.weight": ("self_attn.k_norm.weight",),
    "ffn_norm.weight": ("post_attention_layernorm.weight",),
    "ffn_gate.weight": ("mlp.gate_proj.weight",),
    "ffn_up.weight": ("mlp.up_proj.weight",),
    "ffn_down.weight": ("mlp.down_proj.weight",),
    "ffn_gate_inp.weight": ("mlp.router.gate.weight", "mlp.gate.weight"),
    "exp_probs_b": ("mlp.expert_bias", "mlp.e_score_correction_bias"),
    "ffn_gate_shexp.weight": ("mlp.shared_mlp.gate_proj.weight", "mlp.shared_experts.gate_proj.weight"),
    "ffn_up_shexp.weight": ("mlp.shared_mlp.up_proj.weight", "mlp.shared_experts.up_proj.weight"),
    "ffn_down_shexp.weight": ("mlp.shared_mlp.down_proj.weight", "mlp.shared_experts.down_proj.weight"),
    "nextn.eh_proj.weight": ("eh_proj.weight",),
    "nextn.enorm.weight": ("enorm.weight",),
    "nextn.hnorm.weight": ("hnorm.weight",),
    "nextn.shared_head_norm.weight": ("final_layernorm.weight",),
}
ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
DERIVED = re.compile(
    r"\.rotary_emb\.inv_freq$"
)  # buffers that old versions saved; recomputed from the config


def open_checkpoint(directory: Path, pre: str | None) -> Source:
    config_path = directory / "config.json"
    config = hf_config.Config(config_path, read_json(config_path))
    hf_config.check_kind(config)
    files, stored = read_directory(directory)
    _refuse_quantized(directory, stored)
    warnings: list[str] = []
    n_mtp = _count_mtp(config, stored, warnings)
    model = hf_config.read_model(config, n_mtp)
    runs = Matcher(directory, model, stored).match()
    words = tokenizer.read(directory, config, model.vocab, pre)
    metadata: list[Entry] = [
        ("general.type", "str", "model"),
        ("general.name", "str", _name(directory, config)),
    ]
    metadata += sampling_metadata(directory)
    metadata += hf_config.model_metadata(config, model)
    metadata += words.metadata
    others = [config_path, directory / INDEX, *words.files, directory / "generation_config.json"]
    return Source(
        model=model,
        reader=FileReader(files),
        runs=runs,
        metadata=metadata,
        files=[path for path in others if path.exists()] + files,
        is_gguf=False,
        warnings=warnings + words.warnings,
    )


def _name(directory: Path, config: hf_config.Config) -> str:
    name = config.values.get("_name_or_path")
    return name if isinstance(name, str) and name.strip("./ ") else directory.resolve().name


def _refuse_quantized(directory: Path, stored: dict[str, Stored]) -> None:
    scales = [name for name in stored if name.endswith(("weight_scale", "input_scale", "weight_scale_inv"))]
    eight = [name for name, tensor in stored.items() if tensor.dtype.startswith("F8_")]
    if scales or eight:
        raise Hy3Error(
            f"{directory}: an FP8 checkpoint ({some(eight or scales, 3)}); FP8 is not supported yet",
            "Convert the BF16 checkpoint",
        )


def _count_mtp(config: hf_config.Config, stored: dict[str, Stored], warnings: list[str]) -> int:
    """MTP layers to write. Some repacks strip the tensors and go on declaring them."""
    first = config.integer("num_hidden_layers")
    declared = hf_config.declared_mtp(config)
    present = 0
    while any(name.startswith(f"model.layers.{first + present}.") for name in stored):
        present += 1
    if declared and not present:
        warnings.append(
            f"the config declares {declared} MTP layer(s), the checkpoint has none: converting without"
        )
        return 0
    if declared is None or declared == present:
        return present
    if not declared:
        warnings.append(f"the config declares no MTP layer, the checkpoint has {present}: keeping it")
        return present
    return declared


class Matcher:
    """Finds the stored tensors for each GGUF tensor, and collects all that is wrong before it complains."""

    def __init__(self, directory: Path, model: Model, stored: dict[str, Stored]) -> None:
        self.directory = directory
        self.model = model
        self.stored = stored
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.misshapen: list[str] = []
        self.undtyped: list[str] = []

    def match(self) -> dict[str, list[Run]]:
        runs = {}
        for tensor in self.model.tensors():
            if not tensor.optional:
                runs[tensor.name] = list(self._runs(tensor))
        extra = [
            self._describe(name) for name in self.stored if name not in self.taken and not self._ignored(name)
        ]
        problems = []
        for kind, names in (
            ("missing", self.missing), ("of the wrong shape", self.misshapen), ("unknown", extra),
            ("of an unsupported dtype", self.undtyped),
        ):  # fmt: skip
            if names:
                problems.append(f"{len(names)} tensor{'s' if len(names) > 1 else ''} {kind}: {some(names)}")
        if problems:
            raise Hy3Error(
                f"{self.directory}: the tensors do not fit config.json: " + "; ".join(problems),
                "Download the checkpoint and its config.json again, or correct the config",
            )
        return runs

    def _ignored(self, name: str) -> bool:
        return (self.model.tied and name == "lm_head.weight") or DERIVED.search(name) is not None

    def _describe(self, name: str) -> str:
        return f"{name} {list(self.stored[name].shape)}"

    def _runs(self, tensor: Tensor) -> Iterator[Run]:
        if tensor.name in ENDS:
            yield from self._whole(tensor, (ENDS[tensor.name],))
            return
        _, block, name = tensor.name.split(".", 2)
        at = f"model.layers.{block}."
        if name in PLAIN:
            yield from self._whole(tensor, tuple(at + other for other in PLAIN[name]))
        else:
            yield from self._experts(
                tensor, at + "mlp.experts.", name.removeprefix("ffn_").removesuffix("_exps.weight")
            )

    def _whole(self, tensor: Tensor, names: tuple[str, ...]) -> Iterator[Run]:
        stored = self._take(names, tuple(reversed(tensor.shape)))
        if stored is not None:
            yield Run(stored.file, stored.offset, DTYPES[stored.dtype], tensor.rows, tensor.cols)

    def _experts(self, tensor: Tensor, at: str, part: str) -> Iterator[Run]:
        """`part` is gate, up or down."""
        cols, rows, n_experts = tensor.shape
        packed = at + ("down_proj" if part == "down" else "gate_up_proj")
        if packed not in self.stored:
            for expert in range(n_experts):
                one = replace(tensor, shape=(cols, rows))
                yield from self._whole(one, (f"{at}{expert}.{part}_proj.weight",))
            return
        fused = 1 if part == "down" else 2
        stored = self._take((packed,), (n_experts, fused * rows, cols))
        if stored is None:
            return
        row = cols * SIZES[stored.dtype]
        for expert in range(n_experts):
            first = expert * fused * rows + (rows if part == "up" else 0)
            yield Run(stored.file, stored.offset + first * row, DTYPES[stored.dtype], rows, cols)

    def _take(self, names: tuple[str, ...], shape: tuple[int, ...]) -> Stored | None:
        name = next((name for name in names if name in self.stored), None)
        if name is None:
            self.missing.append(f"{names[0]} {list(shape)}")
            return None
        seen = name in self.taken  # gate and up come from one packed tensor: complain about it once
        self.taken.add(name)
        stored = self.stored[name]
        if stored.shape != shape:
            if not seen:
                self.misshapen.append(f"{name} {list(stored.shape)}, wanted {list(shape)}")
            return None
        if stored.dtype not in DTYPES:
            if not seen:
                self.undtyped.append(f"{name} {stored.dtype}")
            return None
        return stored
