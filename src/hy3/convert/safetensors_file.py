"""Reads the headers of safetensors files, one or the shards named by an index, with every number checked.

Layout of a file (github.com/huggingface/safetensors): u64 little-endian length of the header, the header in
JSON ({name: {dtype, shape, data_offsets: [begin, end]}}, optionally `__metadata__`), then the data. Offsets
count from the data's beginning; the tensors cover the data without gaps or overlaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from hy3.errors import Hy3Error

MAX_HEADER = 100_000_000  # bytes; the format's own limit
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4,
    "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip
AGAIN = "Download it again"


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: row-major, the last dimension contiguous; `offset` in bytes from the file's
    beginning."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int


def read_directory(directory: Path) -> tuple[list[Path], dict[str, Stored]]:
    """The files of a checkpoint and every tensor in them."""
    index = directory / INDEX
    if index.exists():
        wanted = _read_index(index)
        files = [directory / name for name in sorted(set(wanted.values()))]
        missing = [path.name for path in files if not path.is_file()]
        if missing:
            raise Hy3Error(
                f"{directory}: {some(missing)} of {len(files)} shards missing", f"{AGAIN}, all shards"
            )
    elif (directory / SINGLE).exists():
        wanted, files = {}, [directory / SINGLE]
    else:
        raise Hy3Error(
            f"{directory}: neither {INDEX} nor {SINGLE} is there", "Give a checkpoint in safetensors format"
        )
    tensors: dict[str, Stored] = {}
    for number, path in enumerate(files):
        for tensor in read_header(path, number):
            if tensor.name in tensors:
                other = files[tensors[tensor.name].file].name
                raise Hy3Error(f"{directory}: tensor '{tensor.name}' is in {other} and in {path.name}", AGAIN)
            tensors[tensor.name] = tensor
    _compare_with_index(directory, wanted, files, tensors)
    return files, tensors


def some(names: Iterable[str], limit: int = 20) -> str:
    """The names, the first `limit` of them and a count when there are more."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(listed[:limit]) + more


def _read_index(path: Path) -> dict[str, str]:
    content = read_json(path)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise Hy3Error(f"{path}: 'weight_map' is missing or empty", AGAIN)
    for name, file in weight_map.items():
        if not isinstance(file, str) or Path(file).name != file:
            raise Hy3Error(f"{path}: '{name}' is mapped to {file!r}, which is not a file name", AGAIN)
    return weight_map


def _compare_with_index(
    directory: Path, wanted: dict[str, str], files: list[Path], found: dict[str, Stored]
) -> None:
    lost = [f"{name} (in {file})" for name, file in wanted.items() if name not in found]
    if lost:
        raise Hy3Error(
            f"{directory}: the index names tensors that the shards lack: {some(lost)}", f"{AGAIN}, all shards"
        )
    if not wanted:
        return
    for name, tensor in found.items():
        if wanted.get(name) != files[tensor.file].name:
            raise Hy3Error(
                f"{directory}: '{name}' is in {files[tensor.file].name}, the index says {wanted.get(name)}",
                AGAIN,
            )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise Hy3Error(f"{path}: there is no such file", "A checkpoint needs it; download it too") from None
    except (ValueError, RecursionError) as error:
        raise Hy3Error(f"{path}: not valid JSON: {error}", AGAIN) from None
    if not isinstance(content, dict):
        raise Hy3Error(f"{path}: a JSON object was expected, not {type(content).__name__}", AGAIN)
    return content


def read_header(path: Path, number: int) -> list[Stored]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else -1
        if length < 2 or length > min(size - 8, MAX_HEADER):
            raise Hy3Error(
                f"{path}: not a whole safetensors file: header of {length} bytes, file of {size}", AGAIN
            )
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Hy3Error(f"{path}: the header is not valid JSON: {error}", AGAIN) from None
    if not isinstance(header, dict):
        raise Hy3Error(f"{path}: the header is not a JSON object", AGAIN)
    header.pop("__metadata__", None)
    data, data_bytes = 8 + length, size - 8 - length
    tensors, spans = [], []
    for name, entry in header.items():
        begin, end, dtype, shape = _entry(path, name, entry, data_bytes)
        tensors.append(Stored(name, dtype, shape, number, data + begin))
        spans.append((begin, end, name))
    _check_coverage(path, sorted(spans), data_bytes)
    return tensors


def _entry(path: Path, name: str, entry: Any, data_bytes: int) -> tuple[int, int, str, tuple[int, ...]]:
    def wrong(why: str) -> Hy3Error:
        return Hy3Error(f"{path}: tensor '{name}': {why}", AGAIN)

    if not isinstance(entry, dict):
        raise wrong("its header entry is not an object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if dtype not in SIZES:
        raise wrong(f"unknown dtype {dtype!r}")
    if not _is_counts(shape):
        raise wrong(f"broken shape {shape!r}")
    if not _is_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= data_bytes:
        raise wrong(f"its data at {offsets!r} lies outside the file ({data_bytes} bytes of data)")
    size = math.prod(shape) * SIZES[dtype]
    if offsets[1] - offsets[0] != size:
        raise wrong(f"{offsets[1] - offsets[0]} bytes stored, {size} needed for {dtype} {list(shape)}")
    return offsets[0], offsets[1], dtype, tuple(shape)


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _check_coverage(path: Path, spans: list[tuple[int, int, str]], data_bytes: int) -> None:
    at = 0
    for begin, end, name in spans:
        if begin != at:
            kind = (
                "overlaps the one before it"
                if begin < at
                else f"leaves a gap of {begin - at} bytes before it"
            )
            raise Hy3Error(f"{path}: tensor '{name}' {kind}", AGAIN)
        at = end
    if at != data_bytes:
        raise Hy3Error(f"{path}: {data_bytes - at} bytes after the last tensor", AGAIN)
