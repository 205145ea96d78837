"""A GGUF as a Source: to requantize, split or merge it, to drop a part, or to turn the original hy3 engine's
dialect into the standard one.

Whatever names and fusions the file uses, what comes out has the standard tensors (shapes.py): `attn_qkv` and
`ffn_gate_up_exps` are cut into their parts by rows, the selection bias loses its `.bias`, experts that are
tensors of their own become one tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import hy3core
from hy3.convert import pretokenizer
from hy3.convert.gguf_model import Dialect, read_metadata, read_model
from hy3.convert.layouts import row_bytes
from hy3.convert.safetensors_file import some
from hy3.convert.shapes import Tensor
from hy3.convert.source import FileReader, Run, Source
from hy3.errors import Hy3Error

# The original engine's names after `blk.N.`, where they differ.
ORIGINAL = {
    "exp_probs_b": "ffn_gate_exps_b.bias",
    "nextn.eh_proj.weight": "eh_proj.weight",
    "nextn.enorm.weight": "enorm.weight",
    "nextn.hnorm.weight": "hnorm.weight",
    "nextn.shared_head_norm.weight": "final_norm.weight",
}


@dataclass(frozen=True)
class Found:
    """A tensor of the file."""

    file: int
    offset: int
    type: str
    cols: int
    rows: int

    def run(self, first: int = 0, rows: int | None = None) -> Run:
        """All of its rows, or `rows` of them from row `first`."""
        offset = self.offset + first * row_bytes(self.type, self.cols)
        return Run(self.file, offset, self.type, self.rows if rows is None else rows, self.cols)


def open_gguf(path: Path, pre: str | None) -> Source:
    file = hy3core.GGUF(str(path))
    if pre is not None:
        pretokenizer.choose(None, pre, str(path))
    warnings: list[str] = []
    dialect = Dialect(path, file)
    model = read_model(dialect, warnings)
    has_trunk = "blk.0.attn_norm.weight" in dialect.infos
    paths = [Path(name) for name in file.paths]
    runs = Matcher(path, dialect, file.file_of).match(model.tensors(trunk=has_trunk))
    file_type = dialect.metadata.get("general.file_type")
    return Source(
        model=model,
        # Read, not mapped as hy3core does it: mapped pages would count as this process' memory.
        reader=FileReader(paths),
        runs=runs,
        metadata=read_metadata(dialect, model, pre, warnings),
        files=paths,
        is_gguf=True,
        has_trunk=has_trunk,
        file_type=file_type if isinstance(file_type, int) else None,
        warnings=warnings,
    )


class Matcher:
    def __init__(self, path: Path, dialect: Dialect, file_of: Callable[[str], int]) -> None:
        self.path = path
        self.dialect = dialect
        self.file_of = file_of
        self.taken: set[str] = set()
        self.missing: list[str] = []
        self.misshapen: list[str] = []

    def match(self, wanted: Iterator[Tensor]) -> dict[str, list[Run]]:
        runs = {}
        for tensor in wanted:
            found = list(self._runs(tensor))
            if found or not tensor.optional:
                runs[tensor.name] = found
        infos = self.dialect.infos
        extra = [f"{name} {list(infos[name].shape)}" for name in infos if name not in self.taken]
        problems = [
            f"{len(names)} tensor{'s' if len(names) > 1 else ''} {kind}: {some(names)}"
            for kind, names in (
                ("missing", self.missing),
                ("of the wrong shape", self.misshapen),
                ("unknown", extra),
            )
            if names
        ]
        if problems:
            raise Hy3Error(
                f"{self.path}: the tensors are not those of a hy_v3 model with these keys: "
                + "; ".join(problems),
                "Download the file again, or convert the original checkpoint",
            )
        return runs

    def _runs(self, tensor: Tensor) -> Iterator[Run]:
        infos = self.dialect.infos
        at, name = tensor.name, ""
        if tensor.name.startswith("blk."):
            _, block, name = tensor.name.split(".", 2)
            at = f"blk.{block}."
        if tensor.name in infos:
            yield from self._whole(tensor, tensor.name)
        elif name == "exp_probs_b" and tensor.name + ".bias" in infos:
            yield from self._whole(tensor, tensor.name + ".bias")
        elif name in ORIGINAL and at + ORIGINAL[name] in infos:
            yield from self._whole(tensor, at + ORIGINAL[name])
        elif name in ("attn_q.weight", "attn_k.weight", "attn_v.weight") and at + "attn_qkv.weight" in infos:
            yield from self._from_qkv(tensor, at + "attn_qkv.weight", name)
        elif (
            name in ("ffn_gate_exps.weight", "ffn_up_exps.weight") and at + "ffn_gate_up_exps.weight" in infos
        ):
            yield from self._from_gate_up(tensor, at + "ffn_gate_up_exps.weight", name)
        elif len(tensor.shape) == 3 and self.dialect.is_original:
            part = name.removeprefix("ffn_").removesuffix("_exps.weight")
            for expert in range(tensor.shape[2]):
                one = f"{at}ffn_{part}_exps.{expert}.{part}_proj.weight"
                yield from self._whole(replace(tensor, shape=tensor.shape[:2]), one)
        elif not tensor.optional:
            self._take(tensor.name, tensor.shape)

    def _whole(self, tensor: Tensor, name: str) -> Iterator[Run]:
        found = self._take(name, tensor.shape)
        if found is not None:
            yield found.run()

    def _from_qkv(self, tensor: Tensor, fused: str, name: str) -> Iterator[Run]:
        model = self.dialect.dimensions
        q, kv = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
        found = self._take(fused, (tensor.cols, q + 2 * kv))
        if found is not None:
            first = {"attn_q.weight": 0, "attn_k.weight": q, "attn_v.weight": q + kv}[name]
            yield found.run(first, tensor.rows)

    def _from_gate_up(self, tensor: Tensor, fused: str, name: str) -> Iterator[Run]:
        cols, rows, n_experts = tensor.shape
        found = self._take(fused, (cols, 2 * rows, n_experts))
        if found is not None:
            for expert in range(n_experts):
                yield found.run(2 * rows * expert + (rows if "_up_" in name else 0), rows)

    def _take(self, name: str, shape: tuple[int, ...]) -> Found | None:
        info = self.dialect.infos.get(name)
        if info is None:
            self.missing.append(f"{name} {list(shape)}")
            return None
        seen = name in self.taken
        self.taken.add(name)
        stored = tuple(info.shape)
        if stored != shape and _squeezed(stored) != _squeezed(shape):
            if not seen:
                self.misshapen.append(f"{name} {list(stored)}, wanted {list(shape)}")
            return None
        rows = 1
        for size in stored[1:]:
            rows *= size
        return Found(self.file_of(name), int(info.offset), str(info.type), stored[0], rows)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without trailing ones, which some writers add and others leave out."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape
