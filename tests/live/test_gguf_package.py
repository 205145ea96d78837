"""The `gguf` package and this project read each other's files alike."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from support.gguf_files import TYPES

import hy3core

pytestmark = pytest.mark.live

KIND = gguf.GGUFValueType
SCALARS: dict[str, tuple[Any, Any]] = {  # key: (kind there, value)
    "u8": (KIND.UINT8, 255),
    "i8": (KIND.INT8, -128),
    "u16": (KIND.UINT16, 65535),
    "i16": (KIND.INT16, -32768),
    "u32": (KIND.UINT32, 2**32 - 1),
    "i32": (KIND.INT32, -(2**31)),
    "u64": (KIND.UINT64, 2**64 - 1),
    "i64": (KIND.INT64, -(2**63)),
    "f32": (KIND.FLOAT32, 0.25),
    "f64": (KIND.FLOAT64, 0.1),
    "bool": (KIND.BOOL, True),
    "str": (KIND.STRING, "hy_v3 ｜ 💡"),
}
ARRAYS: dict[str, Any] = {
    "u8": [1, 255],
    "i16": [-1, 2],
    "u32": [0, 2**32 - 1],
    "i32": [-1, 5, 7],
    "u64": [2**64 - 1],
    "i64": [-(2**63), 0],
    "f32": [0.5, -1.5],
    "f64": [0.1, 1e300],
    "bool": [True, False],
    "str": ["", "one", "｜"],
}


def tensors() -> list[tuple[str, tuple[int, ...], str, np.ndarray]]:
    """A tensor of every type: name, shape as NumPy has it (1 to 4 dimensions), type, raw bytes."""
    rng = np.random.default_rng(0)
    out = []
    for i, (name, (_, block, size)) in enumerate(TYPES.items()):
        shape = [(2 * block,), (3, block), (2, 3, 2 * block), (2, 2, 1, block)][i % 4]
        raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // block * size), dtype=np.uint8)
        out.append((f"blk.{i}.{name}", shape, name, raw))
    return out


@pytest.mark.parametrize("alignment", [32, 64])
def test_files_of_the_package_are_read(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "hy_v3")
    if alignment != 32:
        writer.add_custom_alignment(alignment)
    for key, (kind, value) in SCALARS.items():
        writer.add_key_value(key, value, kind)
    for key, values in ARRAYS.items():
        writer.add_key_value(f"array.{key}", values, KIND.ARRAY, SCALARS[key][0])
    for name, _, type_name, raw in tensors():
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[type_name.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file = hy3core.GGUF(path)
    assert file.metadata["general.architecture"] == "hy_v3"
    assert file.alignment == alignment
    assert {key: file.metadata[key] for key in SCALARS} == {key: value for key, (_, value) in SCALARS.items()}
    assert {key: file.kinds[key] for key in SCALARS} == {key: key for key in SCALARS}
    assert {key: file.metadata[f"array.{key}"] for key in ARRAYS} == ARRAYS
    assert {key: file.kinds[f"array.{key}"] for key in ARRAYS} == {key: f"[{key}]" for key in ARRAYS}
    assert [t.name for t in file.tensors] == [name for name, *_ in tensors()]
    for info, (name, shape, type_name, raw) in zip(file.tensors, tensors(), strict=True):
        assert (info.type, info.shape, info.nbytes) == (type_name, shape[::-1], raw.nbytes), name
        assert file.tensor(name) == raw.tobytes(), name


@pytest.mark.parametrize("alignment", [32, 64])
def test_our_files_are_read_by_the_package(tmp_path: Path, alignment: int) -> None:
    metadata = [("general.architecture", "str", "hy_v3")]
    metadata += [(key, key, value) for key, (_, value) in SCALARS.items()]
    metadata += [(f"array.{key}", f"[{key}]", values) for key, values in ARRAYS.items()]
    table = [(name, type_name, shape[::-1]) for name, shape, type_name, _ in tensors()]
    header, offsets, data_bytes = hy3core.gguf_header(metadata, table, alignment)
    data = bytearray(data_bytes)
    for offset, (_, _, _, raw) in zip(offsets, tensors(), strict=True):
        data[offset : offset + raw.nbytes] = raw.tobytes()
    path = tmp_path / "ours.gguf"
    path.write_bytes(header + data)

    reader = gguf.GGUFReader(path)
    assert reader.alignment == alignment
    for key, (kind, value) in SCALARS.items():
        assert reader.fields[key].types == [kind], key
        assert reader.fields[key].contents() == value, key
    for key, values in ARRAYS.items():
        assert reader.fields[f"array.{key}"].types == [KIND.ARRAY, SCALARS[key][0]], key
        assert reader.fields[f"array.{key}"].contents() == values, key
    assert [t.name for t in reader.tensors] == [name for name, *_ in tensors()]
    for theirs, (name, shape, type_name, raw) in zip(reader.tensors, tensors(), strict=True):
        assert theirs.tensor_type.name.lower() == type_name, name
        assert tuple(int(n) for n in theirs.shape) == shape[::-1], name
        assert theirs.data.tobytes() == raw.tobytes(), name


def test_the_tests_own_writer_agrees(tmp_path: Path) -> None:
    """tests/support/gguf_files.py, on which the other tests stand."""
    from support.gguf_files import tiny_hy3_parts, write_gguf

    metadata, parts = tiny_hy3_parts()
    reader = gguf.GGUFReader(write_gguf(tmp_path / "m.gguf", metadata, parts))
    contents = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    assert contents == {k: pytest.approx(v) if isinstance(v, float) else v for k, v in metadata.items()}
    for theirs, (name, shape, type_name, raw) in zip(reader.tensors, parts, strict=True):
        assert (theirs.name, tuple(theirs.shape)) == (name, tuple(reversed(shape)))
        assert theirs.tensor_type.name.lower() == type_name
        assert theirs.data.tobytes() == raw


def test_sizes_of_types() -> None:
    for name, (number, block, size) in TYPES.items():
        kind = gguf.GGMLQuantizationType[name.upper()]
        assert (int(kind), gguf.GGML_QUANT_SIZES[kind]) == (number, (block, size))
