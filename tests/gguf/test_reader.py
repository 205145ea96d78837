"""hy3core.GGUF on sound files of another writer: versions, kinds of value, tensor types, split models."""

import math
from pathlib import Path

import pytest
from support.gguf_files import TYPES, Value, build_gguf, tensor_bytes, tiny_hy3, write_gguf

import hy3core

VALUES = {
    "u8": Value("u8", 255),
    "i8": Value("i8", -128),
    "u16": Value("u16", 65535),
    "i16": Value("i16", -32768),
    "u32": Value("u32", 2**32 - 1),
    "i32": Value("i32", -(2**31)),
    "u64": Value("u64", 2**64 - 1),
    "i64": Value("i64", -(2**63)),
    "f32": Value("f32", 0.5),
    "f64": Value("f64", 0.1),
    "true": True,
    "false": False,
    "text": "｜é💡",
    "nothing": "",
    "texts": ["a", "", "｜"],
    "many": Value("u16", list(range(1000))),
    "flags": Value("bool", [True, False, True]),
    "wide": Value("u64", [0, 2**64 - 1]),
    "reals": Value("f64", [0.1, -math.inf]),
    "none": Value("f32", []),
    "k" * 65535: 1,
    "Schlüssel": 1,
}


def raw_of(value: object) -> object:
    return value.value if isinstance(value, Value) else value


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("use_mmap", [True, False])
def test_values(tmp_path: Path, version: int, use_mmap: bool) -> None:
    file = hy3core.GGUF(write_gguf(tmp_path / "v.gguf", VALUES, version=version), use_mmap=use_mmap)
    assert dict(file.metadata) == {key: raw_of(value) for key, value in VALUES.items()}
    assert list(file.metadata) == list(VALUES)
    assert file.kinds["many"] == "[u16]" and file.kinds["text"] == "str" and file.kinds["i64"] == "i64"
    assert file.tensors == []


def test_string_bytes_need_not_be_utf8(tmp_path: Path) -> None:
    """A vocabulary may hold any bytes."""
    file = hy3core.GGUF(write_gguf(tmp_path / "v.gguf", {"x": b"\xff\0", "y": [b"\x80", "a"]}))
    assert file.metadata["x"].encode("utf-8", "surrogateescape") == b"\xff\0"
    assert [s.encode("utf-8", "surrogateescape") for s in file.metadata["y"]] == [b"\x80", b"a"]


def test_nested_arrays_are_passed_over(tmp_path: Path) -> None:
    metadata = {"before": 1, "nested": [[1, 2], [3]], "deep": [[["a"], []], [["b", "c"]]], "after": 2}
    file = hy3core.GGUF(write_gguf(tmp_path / "v.gguf", metadata))
    assert file.metadata["before"] == 1 and file.metadata["after"] == 2
    assert file.kinds["nested"] == "[array]"


@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_every_tensor_type(tmp_path: Path, alignment: int) -> None:
    tensors = []
    for i, (name, (_, block, _)) in enumerate(TYPES.items()):
        shape = [(block * 2,), (3, block), (2, 3, block), (2, 1, 3, block)][i % 4]
        size = tensor_bytes(shape, name)
        tensors.append((f"t.{name}", shape, name, bytes((i + j) % 256 for j in range(size))))
    path = write_gguf(tmp_path / "t.gguf", {}, tensors, alignment=alignment)
    file = hy3core.GGUF(path)
    assert file.alignment == alignment
    assert [t.name for t in file.tensors] == [name for name, *_ in tensors]
    data = path.read_bytes()
    for info, (name, shape, type_name, raw) in zip(file.tensors, tensors, strict=True):
        assert (info.type, info.shape, info.nbytes) == (type_name, tuple(reversed(shape)), len(raw))
        assert file.tensor(name) == raw == data[info.offset : info.offset + info.nbytes]
        assert info.offset % alignment == 0
        assert file.tensor(name).readonly
    with pytest.raises(KeyError):
        file.tensor("absent")


def test_tensors_in_any_order_with_gaps(tmp_path: Path) -> None:
    image = build_gguf({}, [(n, (8,), "f32", n.encode() * 32) for n in "abc"])
    for name, offset in (("a", 128), ("b", 32), ("c", 0)):
        image.data[image.at("offset", name).offset :][:8] = b""
        at = image.at("offset", name).offset
        image.data[at : at + 8] = offset.to_bytes(8, "little")
    start = image.at("data", "a").offset
    image.data[start:] = b"c" * 32 + b"b" * 32 + bytes(64) + b"a" * 32
    path = tmp_path / "t.gguf"
    path.write_bytes(image.data)
    file = hy3core.GGUF(path)
    assert [bytes(file.tensor(n)) for n in "abc"] == [n.encode() * 32 for n in "abc"]


def test_last_tensor_need_not_be_padded(tmp_path: Path) -> None:
    path = tmp_path / "t.gguf"
    data = build_gguf({}, [("a", (3,), "f32", b"abcdefghijkl")]).data
    path.write_bytes(data[: -(32 - 12)])
    assert bytes(hy3core.GGUF(path).tensor("a")) == b"abcdefghijkl"


def test_a_tensor_outlives_the_file_object(tmp_path: Path) -> None:
    view = hy3core.GGUF(write_gguf(tmp_path / "t.gguf", {}, [("a", (1,), "f32", b"abcd")])).tensor("a")
    assert bytes(view) == b"abcd"


def test_tiny_model(tmp_path: Path) -> None:
    file = hy3core.GGUF(tiny_hy3(tmp_path / "m.gguf"))
    assert file.metadata["general.architecture"] == "hy_v3"
    assert file.dialect == "standard"
    assert {t.type for t in file.tensors} == {"f32", "q8_0"}


def write_parts(folder: Path, parts: list[list[str]], **changes: object) -> Path:
    """A split model, parts[i] naming the tensors of part i; changes: keys of all parts, None for no key."""
    for no, names in enumerate(parts):
        keys: dict[str, object] = {"general.architecture": "hy_v3"} if no == 0 else {}
        keys["split.no"] = Value("u16", no)
        keys["split.count"] = Value("u16", len(parts))
        keys["split.tensors.count"] = Value("i32", sum(len(p) for p in parts))
        keys |= {f"split.{key.replace('_', '.')}": value for key, value in changes.items()}
        keys = {key: value for key, value in keys.items() if value is not None}
        tensors = [(n, (8,), "f32", n.encode()[:1] * 32) for n in names]
        write_gguf(folder / f"m-{no + 1:05}-of-{len(parts):05}.gguf", keys, tensors)
    return folder / f"m-00001-of-{len(parts):05}.gguf"


def test_split(tmp_path: Path) -> None:
    first = write_parts(tmp_path, [["a", "b"], ["c"], ["d"]])
    file = hy3core.GGUF(first)
    assert file.paths == tuple(str(first).replace("00001-of", f"0000{i}-of") for i in (1, 2, 3))
    assert [t.name for t in file.tensors] == ["a", "b", "c", "d"]
    assert [bytes(file.tensor(n))[:1] for n in "abcd"] == [b"a", b"b", b"c", b"d"]


def test_split_without_tensors_in_the_first(tmp_path: Path) -> None:
    file = hy3core.GGUF(write_parts(tmp_path, [[], ["a"]]))
    assert [t.name for t in file.tensors] == ["a"]


def test_split_without_a_total(tmp_path: Path) -> None:
    assert len(hy3core.GGUF(write_parts(tmp_path, [["a"], ["b"]], tensors_count=None)).tensors) == 2


def test_split_of_one_file_is_a_file(tmp_path: Path) -> None:
    keys = {
        "split.no": Value("u16", 0),
        "split.count": Value("u16", 1),
        "split.tensors.count": Value("i32", 0),
    }
    assert len(hy3core.GGUF(write_gguf(tmp_path / "any.gguf", keys)).paths) == 1


FORMAT, INVALID = hy3core.FormatError, hy3core.InvalidArgumentError


@pytest.mark.parametrize(
    ("parts", "changes", "open_no", "error", "message"),
    [
        (2, {}, 2, INVALID, r"part 2 of .* 2 files\. Open the first part, .*m-00001-of-00002"),
        (2, {"tensors_count": 3}, 1, FORMAT, r"00001.*say.*2 parts hold 3 tensors, but they hold 2"),
        (2, {"count": Value("u16", 3)}, 1, FORMAT, r"00001-of-00002.*split into 3 files, but its name"),
        (2, {"count": Value("u16", 1001)}, 1, FORMAT, r"'split.count' should be an integer from 0 to 1000"),
        (2, {"count": "two"}, 1, FORMAT, r"'split.count' should be an integer .* but is string"),
        (2, {"no": Value("u16", 0)}, 1, FORMAT, r"00002-of-00002.*should be part 2 of 2.*say part 1 of 2"),
        (2, {"no": None}, 1, FORMAT, r"00002-of-00002.*say nothing of parts"),
        (2, {"no": Value("i32", -1)}, 1, FORMAT, r"'split.no' should be an integer from 0"),
    ],
)  # fmt: skip
def test_wrong_splits(
    tmp_path: Path, parts: int, changes: dict[str, object], open_no: int, error: type[Exception], message: str
) -> None:
    first = write_parts(tmp_path, [[chr(97 + i)] for i in range(parts)], **changes)
    with pytest.raises(error, match=message):
        hy3core.GGUF(str(first).replace("00001-of", f"{open_no:05}-of"))


def test_missing_part(tmp_path: Path) -> None:
    first = write_parts(tmp_path, [["a"], ["b"], ["c"]])
    missing = tmp_path / "m-00003-of-00003.gguf"
    missing.unlink()
    with pytest.raises(hy3core.FileError, match=rf"{missing}.*No such file.*part 3 of 3"):
        hy3core.GGUF(first)


def test_renamed_first_part(tmp_path: Path) -> None:
    first = write_parts(tmp_path, [["a"], ["b"]]).rename(tmp_path / "model.gguf")
    with pytest.raises(
        hy3core.FormatError, match=r"model.gguf.*does not end in -00001-of-00002.gguf.*Rename it"
    ):
        hy3core.GGUF(first)


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    with pytest.raises(hy3core.FormatError, match=r"'a' stands twice, here and in .*m-0000[12]-of-00002"):
        hy3core.GGUF(write_parts(tmp_path, [["a"], ["b", "a"]]))


def test_parts_broken_inside_are_named(tmp_path: Path) -> None:
    first = write_parts(tmp_path, [["a"], ["b"]])
    second = tmp_path / "m-00002-of-00002.gguf"
    second.write_bytes(second.read_bytes()[:-16])
    with pytest.raises(hy3core.FormatError, match=rf"{second}: tensor 'b' .*past the end"):
        hy3core.GGUF(first)
