"""What the tests of `convert` share: running it, and reading what came out."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from support.checkpoints import bf16

import hy3core


class Entry(NamedTuple):
    type: str
    shape: tuple[int, ...]  # as NumPy has it, rows first
    data: bytes


def tensors(path: Path) -> dict[str, Entry]:
    file = hy3core.GGUF(str(path))
    return {
        info.name: Entry(info.type, tuple(reversed(info.shape)), bytes(file.tensor(info.name)))
        for info in file.tensors
    }


def metadata(path: Path) -> dict[str, Any]:
    return dict(hy3core.GGUF(str(path)).metadata)


def encoded(array: np.ndarray, type_name: str) -> bytes:
    """float32 values as one of the types that need no quantizer."""
    if type_name == "bf16":
        return bf16(array).tobytes()
    return array.astype({"f32": np.float32, "f16": np.float16}[type_name]).tobytes()


def converted(source: bytes, source_type: str, type_name: str, rows: int, cols: int) -> bytes:
    info = hy3core.types()[type_name]
    out = bytearray(rows * (cols // info.block) * info.nbytes)
    hy3core.convert_rows(source, source_type, type_name, rows, cols, out)
    return bytes(out)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", "from hy3.cli import main; main()", "convert", *map(str, arguments)]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300)


def listing(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
