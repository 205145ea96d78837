"""hy3core.gguf_header against the tests' own writer: the same bytes from the same contents."""

from pathlib import Path

import pytest
from support.gguf_files import TYPES, Value, build_gguf, tensor_bytes

import hy3core

METADATA = [
    ("general.architecture", "str", "hy_v3"),
    ("a.u8", "u8", 200),
    ("a.i8", "i8", -100),
    ("a.u16", "u16", 60000),
    ("a.i16", "i16", -30000),
    ("a.u32", "u32", 2**32 - 1),
    ("a.i32", "i32", -(2**31)),
    ("a.u64", "u64", 2**64 - 1),
    ("a.i64", "i64", -(2**63)),
    ("a.f32", "f32", 0.5),
    ("a.f64", "f64", 0.1),
    ("a.bool", "bool", True),
    ("b.str", "[str]", ["", "｜", "x" * 300]),
    ("b.u16", "[u16]", [0, 65535]),
    ("b.i32", "[i32]", [-1, 2, 3]),
    ("b.f64", "[f64]", [0.1, -0.5]),
    ("b.bool", "[bool]", [True, False]),
    ("b.none", "[f32]", []),
]


def as_value(kind: str, value: object) -> Value:
    name = kind.strip("[]")
    return Value("string" if name == "str" else name, value)


@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_same_bytes_as_the_other_writer(alignment: int) -> None:
    table, tensors = [], []
    for i, (name, (_, block, _)) in enumerate(TYPES.items()):
        shape = [(2 * block,), (3, block), (2, 3, block), (2, 1, 3, block)][i % 4]
        table.append((f"t.{i}", name, shape[::-1]))
        tensors.append((f"t.{i}", shape, name, bytes(tensor_bytes(shape, name))))
    metadata = {key: as_value(kind, value) for key, kind, value in METADATA}
    if alignment != 32:  # ours writes it first
        metadata = {"general.alignment": alignment, **metadata}
    expected = build_gguf(metadata, tensors, alignment=alignment)

    header, offsets, data_bytes = hy3core.gguf_header(METADATA, table, alignment)
    start = expected.at("data", "t.0").offset
    assert header == expected.data[:start]
    assert [start + offset for offset in offsets] == [expected.at("data", t[0]).offset for t in tensors]
    assert len(header) + data_bytes == len(expected.data)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    header, offsets, data_bytes = hy3core.gguf_header(METADATA, [("a", "f32", (3,)), ("b", "q8_0", (32, 2))])
    data = bytearray(data_bytes)
    data[offsets[0] : offsets[0] + 12] = b"abcdefghijkl"
    data[offsets[1] : offsets[1] + 68] = b"z" * 68
    path = tmp_path / "w.gguf"
    path.write_bytes(header + data)
    file = hy3core.GGUF(path)
    assert dict(file.metadata) == {key: value for key, _, value in METADATA}
    assert dict(file.kinds) == {key: kind for key, kind, _ in METADATA}
    assert bytes(file.tensor("a")) == b"abcdefghijkl"
    assert bytes(file.tensor("b")) == b"z" * 68


@pytest.mark.parametrize(
    ("metadata", "tensors", "alignment", "message"),
    [
        ([("a", "u32", 1), ("a", "u8", 1)], [], 32, r"key 'a' is written twice"),
        ([("", "u32", 1)], [], 32, r"key '' of 0 bytes cannot be written"),
        ([("x" * 65536, "u32", 1)], [], 32, r"of 65536 bytes cannot be written"),
        ([("a\0b", "u32", 1)], [], 32, r"key 'a\\x00b'"),
        ([], [("a", "f32", (1,)), ("a", "f16", (1,))], 32, r"tensor 'a' is written twice"),
        (
            [],
            [("a", "q8_0", (33,))],
            32,
            r"tensor 'a' has rows of 33 .*32 .*q8_0 do not divide",
        ),
        ([], [("a", "f32", (2, 0))], 32, r"tensor 'a' cannot have the shape \[2, 0\]"),
        ([], [("a", "f32", (2**32, 2**32))], 32, r"tensor 'a' cannot have the shape"),
        ([], [("a", "q8_0_hy3", (32,))], 32, r"original hy3 engine only. Convert it to q8_0"),
        ([], [("x" * 64, "f32", (1,))], 32, r"of 64 bytes cannot be written.*1 to 63"),
        ([], [], 0, r"an alignment of 0"),
        ([], [], 48, r"an alignment of 48.*power of two"),
        ([], [], 2**21, r"an alignment of 2097152"),
    ],
)
def test_nonsense_is_refused(metadata: list, tensors: list, alignment: int, message: str) -> None:
    with pytest.raises(hy3core.InvalidArgumentError, match=message):
        hy3core.gguf_header(metadata, tensors, alignment)
