"""Which type each tensor is stored in: the layouts of `-t`, the overrides of `--type`, and what happens to
rows that a type's blocks do not divide.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass

import hy3core
from hy3.convert.shapes import Role, Tensor
from hy3.errors import Hy3Error

COPY = "copy"  # keep each tensor's type

UNIFORM = ("f32", "f16", "bf16", "q8_0")  # every matrix at that type
# The routed experts at that type; they are 97% of Hy3's weights. The rest stays near lossless.
MIXED = ("q4_k", "q5_k", "q6_k", "q3_k", "q2_k", "q4_0", "iq4_nl", "iq4_xs", "mxfp4")
LAYOUTS = (*MIXED[:1], *UNIFORM, *MIXED[1:], COPY)

# general.file_type, llama.cpp's number for what most tensors are (llama_ftype; the _M variants of the
# k-quants).
FILE_TYPES = {
    "f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q2_k": 10, "q3_k": 12, "q4_k": 15, "q5_k": 17, "q6_k": 18,
    "iq4_nl": 25, "iq4_xs": 30, "bf16": 32, "mxfp4": 38,
}  # fmt: skip

IN_MIXED = {
    Role.EMBEDDING: "f16",
    Role.OUTPUT: "q8_0",
    Role.ATTENTION: "q8_0",
    Role.DENSE: "q8_0",
    Role.SHARED: "q8_0",
}


@dataclass(frozen=True)
class Override:
    """`--type PATTERN=TYPE`: a shell pattern for the whole name, or after `re:` a regular expression found in
    it."""

    pattern: str
    type: str

    @classmethod
    def parse(cls, text: str) -> Override:
        pattern, equals, name = text.rpartition("=")
        if not equals or not pattern:
            raise Hy3Error(
                f"--type {text} is not of the form PATTERN=TYPE", "For example: --type '*ffn_down_exps*=q6_k'"
            )
        name = name.lower()
        if name not in writable_types():
            raise Hy3Error(
                f"--type {text}: '{name}' is not a type that can be written", f"Choose one of {_listed()}"
            )
        if pattern.startswith("re:"):
            try:
                re.compile(pattern[3:])
            except re.error as error:
                raise Hy3Error(
                    f"--type {text}: the regular expression is wrong: {error}", "Correct it"
                ) from None
        return cls(pattern, name)

    def matches(self, name: str) -> bool:
        if self.pattern.startswith("re:"):
            return re.search(self.pattern[3:], name) is not None
        return fnmatch.fnmatchcase(name, self.pattern)


def writable_types() -> list[str]:
    return [name for name, info in hy3core.types().items() if info.quantizable]


def _listed() -> str:
    return ", ".join(writable_types())


def row_bytes(type_name: str, cols: int) -> int:
    info = hy3core.types()[type_name]
    return cols // int(info.block) * int(info.nbytes)


class TypeChooser:
    """Chooses a type per tensor and collects what to warn about."""

    def __init__(self, layout: str, overrides: Iterable[Override], *, source_is_gguf: bool) -> None:
        self.layout = layout
        self.keep_exact = layout == COPY and source_is_gguf
        self.overrides = list(overrides)
        self._used: set[Override] = set()
        self._fallbacks: dict[tuple[str, int, str], list[str]] = {}

    def choose(self, tensor: Tensor, source_type: str) -> str:
        if tensor.role is Role.EXACT:
            return source_type if self.keep_exact else "f32"
        wanted = self._wanted(tensor, source_type)
        if wanted == source_type:
            return wanted
        info = hy3core.types()[wanted]
        if tensor.cols % info.block == 0:
            return wanted
        instead = "q8_0" if tensor.cols % int(hy3core.types()["q8_0"].block) == 0 else "f16"
        self._fallbacks.setdefault((wanted, tensor.cols, instead), []).append(tensor.name)
        return instead

    def _wanted(self, tensor: Tensor, source_type: str) -> str:
        matching = [override for override in self.overrides if override.matches(tensor.name)]
        self._used.update(matching)
        if matching:
            return matching[-1].type  # the last one given wins
        if self.layout == COPY:
            return "q8_0" if source_type == "q8_0_hy3" else source_type  # no other engine reads those blocks
        if self.layout in UNIFORM:
            return self.layout
        return IN_MIXED.get(tensor.role, self.layout)

    def check_overrides(self) -> None:
        """An override that changed nothing is a typing error more often than not."""
        for override in self.overrides:
            if override not in self._used:
                raise Hy3Error(
                    f"--type {override.pattern}={override.type} matches no tensor whose type can be chosen",
                    "Names are like blk.0.attn_q.weight (`hy3 inspect --tensors` lists them); norms, router "
                    "and selection bias are always f32",
                )

    def warnings(self) -> list[str]:
        out = []
        for (wanted, cols, instead), names in self._fallbacks.items():
            block = hy3core.types()[wanted].block
            why = f"rows of {cols} are no multiple of {wanted}'s block of {block}"
            out.append(f"{_some(names)}: {why}; stored as {instead}")
        return out


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
