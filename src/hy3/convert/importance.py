"""The importance matrix of `--imatrix`: which of its entries weighs which tensor, and the columns' weights.

An entry has the mean square of what each column of a weight is multiplied by, for each expert. Names are
those of the model that it was made with, so the parts of a fused tensor are looked for under its name, too:
they read the same rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import hy3core
from hy3.convert.layouts import MIXED
from hy3.convert.safetensors_file import some
from hy3.convert.shapes import Model, Role, Tensor
from hy3.convert.source import Entry
from hy3.errors import Hy3Error

# Types whose scales are searched for; Q8_0 takes a block's largest value, and floats have no choice to make.
WEIGHTED = frozenset(MIXED)
FUSED = {
    "attn_q.weight": "attn_qkv.weight",
    "attn_k.weight": "attn_qkv.weight",
    "attn_v.weight": "attn_qkv.weight",
    "ffn_gate_exps.weight": "ffn_gate_up_exps.weight",
    "ffn_up_exps.weight": "ffn_gate_up_exps.weight",
}
KEYS = "quantize.imatrix."  # where llama.cpp notes what a file was quantized with


class Importance:
    def __init__(self, path: Path, model: Model) -> None:
        """`model` is the source's, with the parts that are not kept: entries for them are no mistake."""
        self.path = path
        self.file = hy3core.ImportanceMatrix(str(path))
        self.digest = _sha256(path)
        self._names = frozenset(self.file.names)
        used = [self._entry(tensor) for tensor in model.tensors()]
        self._unknown = sorted(self._names.difference(name for name in used if name is not None))
        if len(self._unknown) == len(self._names):
            raise Hy3Error(
                f"{path}: the importance matrix has nothing for this model; it has {some(self._unknown, 3)}",
                "Make it with this model: hy3 imatrix -m MODEL -f TEXT -o FILE",
            )

    def covers(self, tensor: Tensor) -> bool:
        entry = self._entry(tensor)
        return (
            entry is not None
            and self.file.mean_squares(entry, tensor.cols, n_matrices(tensor), None) is not None
        )

    def columns(self, tensor: Tensor, matrix: int) -> Any:
        """float32[cols] for one of a tensor's matrices; None: unweighted.

        An expert that no token was routed to has no data. All experts of a layer read the same hidden states,
        so for gate and up the mean over the others' rows takes the place; the columns of `down` are the
        expert's own neurons, of which the others say nothing.
        """
        entry = self._entry(tensor)
        if entry is None:
            return None
        size = (tensor.cols, n_matrices(tensor))
        found = self.file.mean_squares(entry, *size, matrix)
        if found is None and tensor.role is Role.EXPERTS and "_down_" not in tensor.name:
            found = self.file.mean_squares(entry, *size, None)
        return found

    def warnings(self, weighted: Iterable[Tensor]) -> list[str]:
        """`weighted`: the tensors to be written in a type that the importance makes a difference to."""
        out = []
        tensors = list(weighted)
        if self._unknown:
            out.append(
                f"{self.path.name} has entries for tensors this model does not have: {some(self._unknown)}"
            )
        if not tensors:
            out.append(f"--imatrix changes nothing: no tensor is stored as one of {', '.join(MIXED)}")
        without = [tensor.name for tensor in tensors if not self.covers(tensor)]
        if without:
            out.append(f"{self.path.name} has no data for {some(without)}: quantized without it")
        unvisited = dict.fromkeys(expert for tensor in tensors for expert in self._unvisited(tensor))
        if unvisited:
            out.append(
                f"{self.path.name} has no data for {len(unvisited)} experts ({some(unvisited, 3)}): the "
                "mean of the others stands in for gate and up, and down is quantized without it"
            )
        return out

    def _unvisited(self, tensor: Tensor) -> Iterator[str]:
        entry = self._entry(tensor)
        if entry is None or not self.covers(tensor):
            return
        for expert in range(n_matrices(tensor)):
            if self.file.mean_squares(entry, tensor.cols, n_matrices(tensor), expert) is None:
                yield f"blk.{tensor.name.split('.')[1]} expert {expert}"

    def metadata(self) -> list[Entry]:
        """llama.cpp's keys; names of files without their directories."""
        entries: list[Entry] = [(KEYS + "file", "str", self.path.name)]
        if self.file.datasets:
            entries.append((KEYS + "dataset", "str", Path(self.file.datasets[0]).name))
        entries.append((KEYS + "entries_count", "u32", len(self.file.names)))
        if self.file.chunks:
            entries.append((KEYS + "chunks_count", "u32", self.file.chunks))
        return entries

    def _entry(self, tensor: Tensor) -> str | None:
        """The entry's name, its size checked; a FormatError when it has another one."""
        names = [tensor.name]
        if tensor.name.startswith("blk."):
            _, block, part = tensor.name.split(".", 2)
            if part in FUSED:
                names.append(f"blk.{block}.{FUSED[part]}")
        for name in names:
            if name in self._names:
                self.file.mean_squares(name, tensor.cols, n_matrices(tensor))
                return name
        return None


def n_matrices(tensor: Tensor) -> int:
    return tensor.shape[2] if tensor.role is Role.EXPERTS else 1


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
