"""Dimensions and metadata of a GGUF that is to be converted, standard or in the original hy3 engine's
dialect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hy3core
from hy3.convert.hf_config import ARCHITECTURE
from hy3.convert.shapes import Model
from hy3.convert.source import Entry
from hy3.convert.tokenizer import CONTROL, NORMAL, UNUSED, USER_DEFINED
from hy3.errors import Hy3Error

AGAIN = "Download the file again, or convert the original checkpoint"
# Keys that the writer sets anew, and those that only the original engine's files have.
REWRITTEN = re.compile(r"split\.|general\.(architecture|file_type|quantization_version|alignment)$")
COUNTS = ("block_count", "nextn_predict_layers")
DROPPED_FROM_ORIGINAL = ("tokenizer.ggml.scores",)
BAR_TOKEN = re.compile(r"<｜.*｜>", re.DOTALL)
TAG_TOKEN = re.compile(r"</?[a-z_]+(:\w+)?>")


class Dialect:
    """Access to a GGUF's keys under either architecture name, and to its tensors' infos by name."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path = path
        self.metadata = file.metadata
        self.kinds = file.kinds
        self.infos = {info.name: info for info in file.tensors}
        self.is_original = file.dialect == "hy3_original"
        self.arch = self.metadata.get("general.architecture")
        if self.arch not in (ARCHITECTURE, "hy-v3"):
            raise Hy3Error(
                f"{path}: the architecture is {self.arch!r}, not '{ARCHITECTURE}'",
                "Only Hy3 models (Hy3, Hy-MT2) can be converted",
            )
        self.dimensions: Model  # set by read_model

    def wrong(self, what: str) -> Hy3Error:
        return Hy3Error(f"{self.path}: {what}", AGAIN)

    def value(self, key: str) -> Any:
        return self.metadata.get(f"{self.arch}.{key}")

    def integer(self, key: str, otherwise: int | None = None) -> int:
        value = self.value(key)
        if value is None:
            if otherwise is None:
                raise self.wrong(f"key '{self.arch}.{key}' is missing")
            return otherwise
        if type(value) is not int or value < 0:
            raise self.wrong(f"key '{self.arch}.{key}' is {value!r}, an integer was expected")
        return value

    def per_block(self, key: str, n_blocks: int, otherwise: int) -> tuple[int, ...]:
        """A number for all blocks, or a list of one for each."""
        value = self.value(key)
        if value is None or type(value) is int:
            return (self.integer(key, otherwise),) * n_blocks
        values = [int(item) for item in value]
        if len(values) < n_blocks:
            raise self.wrong(f"key '{self.arch}.{key}' has {len(values)} entries for {n_blocks} blocks")
        return tuple(values[:n_blocks])

    def rows(self, name: str, otherwise: int) -> int:
        info = self.infos.get(name)
        return int(info.shape[1]) if info is not None and len(info.shape) > 1 else otherwise

    def cols(self, name: str) -> int | None:
        info = self.infos.get(name)
        return int(info.shape[0]) if info is not None else None

    def has(self, block: int, *names: str) -> bool:
        return any(f"blk.{block}.{name}" in self.infos for name in names)


def read_model(dialect: Dialect, warnings: list[str]) -> Model:
    n_blocks, declared = _blocks(dialect)
    n_layers = n_blocks - declared
    n_mtp = declared
    if declared and not any(
        dialect.has(n_layers, name) for name in ("nextn.eh_proj.weight", "eh_proj.weight")
    ):
        warnings.append(
            f"{dialect.path.name} declares {declared} MTP layer(s) and has none: converting without"
        )
        n_mtp = 0
    kept = n_layers + n_mtp
    sparse = tuple(dialect.has(block, "ffn_gate_inp.weight") or block >= n_layers for block in range(kept))
    first = (
        0 if dialect.has(0, "attn_norm.weight") else n_layers
    )  # an MTP-only file starts with its MTP layer
    hidden = dialect.integer("embedding_length")
    # The original engine's rope.dimension_count is wrong; the head norm's length is not.
    head_dim = dialect.cols(f"blk.{first}.attn_q_norm.weight") or dialect.integer("attention.key_length")
    n_experts = dialect.integer("expert_count", 0)
    n_shared = dialect.integer("expert_shared_count", 1) if any(sparse) else 0
    shared = next((block for block in range(kept) if dialect.has(block, "ffn_gate_shexp.weight")), -1)
    expert_ffn = dialect.per_block("expert_feed_forward_length", kept, 0)
    biased = any(
        dialect.has(block, "exp_probs_b", "exp_probs_b.bias", "ffn_gate_exps_b.bias") for block in range(kept)
    )
    dialect.dimensions = Model(
        n_layers=n_layers,
        n_mtp=n_mtp,
        hidden=hidden,
        vocab=dialect.rows("token_embd.weight", 0),
        n_heads=dialect.integer("attention.head_count"),
        n_kv_heads=dialect.integer("attention.head_count_kv"),
        head_dim=head_dim,
        n_experts=n_experts,
        n_experts_used=dialect.integer("expert_used_count", 0),
        n_shared_experts=n_shared if shared >= 0 else 0,
        ffn=dialect.per_block("feed_forward_length", kept, 0),
        expert_ffn=expert_ffn,
        shared_ffn=dialect.integer(
            "expert_shared_feed_forward_length", n_shared * (max(expert_ffn) if expert_ffn else 0)
        ),
        sparse=sparse,
        tied="output.weight" not in dialect.infos,
        selection_bias=biased,
    )
    return dialect.dimensions


def _blocks(dialect: Dialect) -> tuple[int, int]:
    """Blocks with the MTP layers, and how many of them are that."""
    if dialect.is_original:
        # Its keys and its tensors do not always agree, so the tensors decide.
        blocks = {int(match[1]) for name in dialect.infos if (match := re.match(r"blk\.(\d+)\.", name))}
        n_blocks = max(blocks, default=-1) + 1
        return n_blocks, sum(dialect.has(block, "eh_proj.weight") for block in blocks)
    n_blocks, declared = dialect.integer("block_count"), dialect.integer("nextn_predict_layers", 0)
    if not declared < n_blocks <= 4096:
        raise dialect.wrong(f"{n_blocks} blocks, {declared} of them MTP layers, make no sense")
    return n_blocks, declared


def read_metadata(dialect: Dialect, model: Model, pre: str | None, warnings: list[str]) -> list[Entry]:
    """The file's own keys, in order, under the standard architecture name."""
    entries: dict[str, Entry] = {}
    prefix = f"{dialect.arch}."
    for key, value in dialect.metadata.items():
        name = ARCHITECTURE + "." + key.removeprefix(prefix) if key.startswith(prefix) else key
        if REWRITTEN.match(name) or name in [f"{ARCHITECTURE}.{count}" for count in COUNTS]:
            continue
        entries[name] = (name, dialect.kinds[key], value)
    if dialect.is_original:
        _repair_original(dialect, model, entries, warnings)
    if pre is not None:
        entries["tokenizer.ggml.pre"] = ("tokenizer.ggml.pre", "str", pre)
    return list(entries.values())


def _repair_original(dialect: Dialect, model: Model, entries: dict[str, Entry], warnings: list[str]) -> None:
    def put(key: str, kind: str, value: object, *, keep: bool = False) -> None:
        if not (keep and key in entries):
            entries[key] = (key, kind, value)

    p = ARCHITECTURE + "."
    for key in DROPPED_FROM_ORIGINAL:
        entries.pop(key, None)
    put(p + "rope.freq_base", "f32", float(dialect.value("rope.freq_base") or 0))  # an integer in these files
    for key in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        put(p + key, "u32", model.head_dim)
    put(p + "expert_gating_func", "u32", 2, keep=True)
    put(p + "expert_weights_norm", "bool", True, keep=True)
    put(p + "expert_shared_count", "u32", model.n_shared_experts, keep=True)
    put(p + "expert_shared_feed_forward_length", "u32", model.shared_ffn, keep=True)
    tokens = dialect.metadata.get("tokenizer.ggml.tokens")
    if tokens is None:
        raise dialect.wrong("there is no vocabulary (key 'tokenizer.ggml.tokens')")
    tokens = list(tokens)
    put("tokenizer.ggml.model", "str", "gpt2")
    put("tokenizer.ggml.pre", "str", "hunyuan-dense", keep=True)
    types = list(dialect.metadata.get("tokenizer.ggml.token_type") or map(_token_type, tokens))
    put("tokenizer.ggml.token_type", "[i32]", types)
    if "tokenizer.ggml.merges" not in entries:
        # The file has none; a merge is found for every token that two shorter ones make.
        put("tokenizer.ggml.merges", "[str]", hy3core.rebuild_merges(tokens, types))
        warnings.append("the file has no merges: rebuilt from the vocabulary")
    put("tokenizer.ggml.add_bos_token", "bool", False)


def _token_type(token: str) -> int:
    if BAR_TOKEN.fullmatch(token):
        return CONTROL
    if TAG_TOKEN.fullmatch(token):
        return USER_DEFINED
    return UNUSED if re.fullmatch(r"\[PAD\d+\]", token) else NORMAL
