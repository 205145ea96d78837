"""Importance matrix files for tests, in llama.cpp's two layouts."""

import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from support.gguf_files import Tensor, write_gguf

Entries = Mapping[str, tuple[np.ndarray, np.ndarray]]  # name: sums [n, cols], counts [n]
KEYS = {
    "general.type": "imatrix",
    "imatrix.datasets": ["a.txt", "dir/b.txt"],
    "imatrix.chunk_count": 5,
    "imatrix.chunk_size": 512,
}


def tensors(entries: Entries) -> list[Tensor]:
    out: list[Tensor] = []
    for name, (sums, counts) in entries.items():
        out.append((f"{name}.in_sum2", sums.shape, "f32", sums.astype("<f4").tobytes()))
        out.append((f"{name}.counts", (len(counts), 1), "f32", np.asarray(counts, "<f4").tobytes()))
    return out


def write_imatrix(path: Path, entries: Entries) -> Path:
    return write_gguf(path, KEYS, tensors(entries))


def legacy_bytes(entries: Entries, calls: int = 3, dataset: bytes = b"a.txt") -> bytes:
    """As llama-imatrix --output-format dat: means times calls, 1 for an expert without data."""
    data = struct.pack("<i", len(entries))
    for name, (sums, counts) in entries.items():
        counts = np.asarray(counts, np.float64)[:, None]
        means = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0) * calls
        data += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, means.size)
        data += means.astype("<f4").tobytes()
    return data + struct.pack("<ii", 7, len(dataset)) + dataset
