"""Files with one lie in them. Each is refused, with an error that names the file, key or tensor, and why."""

import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.gguf_files import Image, Tensor, Value, build_gguf

import hy3core

KEYS = {
    "general.architecture": "hy_v3",
    "number": 7,
    "flag": True,
    "numbers": [1, 2, 3],
    "texts": ["one", "two"],
    "flags": Value("bool", [True, False]),
}
TENSORS: list[Tensor] = [
    ("a.weight", (4, 32), "q8_0", bytes(136)),
    ("b.weight", (2, 8), "f32", bytes(64)),
    ("c.weight", (5,), "f16", bytes(10)),
]


def image(**changes: object) -> Image:
    return build_gguf(KEYS, TENSORS, **changes)


def patched(what: str, owner: str, value: int | bytes, index: int = 0) -> bytes:
    made = image()
    field = [f for f in made.fields if f.what == what and f.owner == owner][index]
    raw = (
        value if isinstance(value, bytes) else (value % 2 ** (8 * field.size)).to_bytes(field.size, "little")
    )
    assert len(raw) == field.size
    data = bytes(made.data[: field.offset]) + raw + bytes(made.data[field.offset + field.size :])
    assert data != bytes(made.data)
    return data


def with_tensor(name: str, shape: tuple[int, ...], type_name: str = "f32", size: int | None = None) -> bytes:
    return bytes(build_gguf(KEYS, [*TENSORS, (name, shape, type_name, bytes(size or 64))]).data)


def cut(what: str, owner: str, kept: int = 0) -> bytes:
    """The file up to `kept` bytes into a field."""
    return bytes(image().data[: image().at(what, owner).offset + kept])


def ends_with_the_table() -> bytes:
    made = build_gguf({}, [("a.long.name", (1,), "f32", b"abcd")])
    offset = made.at("offset", "a.long.name")
    return bytes(made.data[: offset.offset + offset.size])


def big_endian() -> bytes:
    """As gguf-py writes it: the magic as ever, everything else swapped."""
    return b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(32)


def nested_count() -> bytes:
    made = build_gguf({"nested": [[1], [2]]})
    at = [f for f in made.fields if f.what == "array_count"][1].offset
    made.data[at : at + 8] = (2**60).to_bytes(8, "little")
    return bytes(made.data)


# name: (the file, or the arguments of patched(); what the error says)
CASES: dict[str, tuple[Callable[[], bytes] | tuple[Any, ...], str]] = {
    # The header
    "one byte": (lambda: b"G", r"magic number needs 4 bytes"),
    "magic": (lambda: b"GGML" + bytes(60), r"not a GGUF file \(it begins with 'GGML'\)"),
    "lfs pointer": (lambda: b"version https://git-lfs.github.com/", r"Git LFS pointer.*git lfs pull"),
    "safetensors": (lambda: struct.pack("<Q", 2) + b"{}" + bytes(20), r"looks like safetensors.*hy3 convert"),
    "zip": (lambda: b"PK\3\4" + bytes(60), r"PyTorch or zip"),
    "only the magic": (lambda: b"GGUF", r"the version needs 4 bytes at byte 4, but only 0 are left"),
    "version 0": (("version", "", 0), r"GGUF version 0; versions 2 and 3"),
    "version 1": (("version", "", 1), r"GGUF version 1; versions 2 and 3 are read\. Convert"),
    "version 4": (("version", "", 4), r"GGUF version 4.*newer than this program"),
    "big-endian": (big_endian, r"big-endian GGUF\. Convert it"),
    "swapped magic": (lambda: b"FUGG" + struct.pack(">I", 3) + bytes(60), r"big-endian"),
    "tensors past the file": (("n_tensors", "", 2**63), r"tensor table claims 9223372036854775808"),
    "keys past the file": (("n_keys", "", 2**64 - 1), r"metadata claims 18446744073709551615"),
    "more tensors than fit": (("n_tensors", "", 8), r"the tensor table claims 8 tensors"),
    "name cut": (lambda: cut("name", "c.weight", -8), r"claims 3 tensors"),
    "a tensor more": (("n_tensors", "", 4), r"damaged"),
    "a key more": (("n_keys", "", len(KEYS) + 1), r"damaged"),
    "a key less": (("n_keys", "", len(KEYS) - 1), r"damaged"),
    # Keys
    "empty key": (("key_length", "number", 0), r"key 1 of the metadata has a name of 0 bytes"),
    "long key": (("key_length", "number", 65536), r"name of 65536 bytes; 1 to 65535"),
    "endless key": (("key_length", "number", 2**64 - 1), r"name of 18446744073709551615 bytes"),
    "key past the file": (("key_length", "number", 60000), r"the name of a key needs 60000 bytes"),
    "key not utf-8": (("key", "number", b"n\xffmber"), r"key 'n\\xFFmber' .* is not UTF-8"),
    "key with a zero": (("key", "number", b"num\0er"), r"key 'num\\x00er' .* is not UTF-8 text"),
    "key twice": (
        lambda: bytes(build_gguf([*KEYS.items(), ("number", 8)]).data),
        r"key 'number' stands twice",
    ),
    # Values
    "value type": (("value_type", "number", 13), r"key 'number' has the unknown value type 13"),
    "value type -1": (("value_type", "number", -1), r"unknown value type 4294967295"),
    "bool 2": (("value", "flag", 2), r"key 'flag' holds a bool of value 2"),
    "bool in an array": (("item", "flags", 255, 1), r"key 'flags' holds a bool of value 255"),
    "string past the file": (
        ("string_length", "general.architecture", 2**40),
        r"a string in key 'general.architecture' needs 1099511627776 bytes",
    ),
    "string length wraps": (("string_length", "general.architecture", -8), r"18446744073709551608 bytes"),
    "array type": (("array_type", "numbers", 99), r"'numbers' has the unknown value type 99"),
    "array count": (("array_count", "numbers", 2**62), r"array in key 'numbers' claims 46116860184273"),
    "array count wraps": (("array_count", "numbers", 2**62 + 1), r"claims 4611686018427387905 entries"),
    "strings count": (("array_count", "texts", 2**61), r"'texts' claims 2305843009213693952 entries"),
    "bools count": (("array_count", "flags", 2**40), r"'flags' claims 1099511627776 entries"),
    "item past the file": (("item_length", "texts", 2**33), r"a string in key 'texts' needs 8589934592"),
    "nested too deep": (
        lambda: bytes(build_gguf({"deep": [[[[[1]]]]]}).data),
        r"key 'deep' nests arrays more than 4 deep",
    ),
    "nested count": (nested_count, r"array in key 'nested' claims 1152921504606846976 entries"),
    # The alignment
    **{
        f"alignment {value}": (
            lambda value=value: bytes(build_gguf(KEYS | {"general.alignment": value}, TENSORS).data),
            r"'general.alignment' (should be an integer from 8 to 1048576|is \d+, not a power of two)",
        )
        for value in (0, 1, 4, 12, 33, 2**21, 2**31, 2**32 - 1, "32", [32], 32.0, True, Value("i32", -32))
    },
    # Tensors
    "empty name": (("name_length", "b.weight", 0), r"tensor 1 has a name of 0 bytes"),
    "long name": (("name_length", "b.weight", 256), r"tensor 1 has a name of 256 bytes; 1 to 255"),
    "name not utf-8": (("name", "b.weight", b"b.w\xc0\x80ght"), r"tensor 'b.w\\xC0\\x80ght' has a name"),
    "name twice": (("name", "b.weight", b"a.weight"), r"tensor 'a.weight' stands twice"),
    "no dimensions": (("n_dims", "b.weight", 0), r"tensor 'b.weight' has 0 dimensions"),
    "five dimensions": (("n_dims", "b.weight", 5), r"'b.weight' has 5 dimensions; 1 to 4"),
    "many dimensions": (("n_dims", "b.weight", -1), r"has 4294967295 dimensions"),
    "a dimension of 0": (("dim", "b.weight", 0), r"'b.weight' has the shape \[0, 2\]"),
    "overflowing shape": (("dim", "b.weight", 2**63), r"'b.weight' has the shape .*more than any file"),
    "large shape": (lambda: with_tensor("x", (2**20, 2**20, 2**20)), r"the shape .*more than any"),
    "wrapping shape": (lambda: with_tensor("x", (2**32, 2**32, 1, 1)), r"the shape .*more than any"),
    "wrapping to little": (lambda: with_tensor("x", (2**32, 2**31, 2, 3)), r"the shape .*more than any"),
    "unknown type": (("type", "b.weight", 4), r"tensor 'b.weight' has the unknown type 4"),
    "large type": (("type", "b.weight", -1), r"tensor 'b.weight' has the unknown type 4294967295"),
    "inner type": (("type", "b.weight", 0x10008), r"tensor 'b.weight' has the unknown type 65544"),
    "broken block": (lambda: with_tensor("x", (2, 33), "q8_0", 100), r"'x' has rows of 33 .*32 of .*q8_0"),
    "broken superblock": (lambda: with_tensor("x", (1, 128), "q4_k", 100), r"rows of 128 .*256 of .*q4_k"),
    "offset not aligned": (("offset", "b.weight", 161), r"'b.weight' begins at offset 161"),
    "offset past the file": (("offset", "b.weight", 2**20), r"'b.weight' of 64 bytes.*past the end"),
    "offset wraps": (("offset", "b.weight", 2**64 - 32), r"'b.weight' of 64 bytes.*past the end"),
    "end past the file": (("dim", "b.weight", 32, 1), r"'b.weight' of 1024 bytes .*past the end"),
    "same place": (("offset", "b.weight", 0), r"overlaps tensor '[ab].weight'"),
    "overlap": (("offset", "c.weight", 192), r"'c.weight' overlaps tensor 'b.weight'"),
    "no data": (lambda: cut("data", "a.weight"), r"claims 3 tensors, which with their data take"),
    "ends with the table": (ends_with_the_table, r"ends before the tensors' data"),
    "table cut": (lambda: cut("offset", "c.weight"), r"claims 3 tensors, which with .* take \d+ bytes"),
    "data cut": (lambda: cut("data", "c.weight", 9), r"'c.weight' of 10 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("use_mmap", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_refused(tmp_path: Path, name: str, use_mmap: bool) -> None:
    make, message = CASES[name]
    path = tmp_path / "lie.gguf"
    path.write_bytes(make() if callable(make) else patched(*make))
    with pytest.raises((hy3core.FormatError, hy3core.UnsupportedError), match=message) as caught:
        hy3core.GGUF(path, use_mmap=use_mmap)
    assert str(caught.value).startswith(str(path))
    assert str(caught.value).rstrip().endswith((".", ")."))


def test_the_unchanged_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "good.gguf"
    path.write_bytes(image().data)
    assert len(hy3core.GGUF(path).tensors) == 3


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    """Cut anywhere before the last tensor's end, no file is read, and none crashes."""
    whole = bytes(image().data)
    last = image().at("data", "c.weight")
    path = tmp_path / "cut.gguf"
    for size in range(1, last.offset + last.size):
        path.write_bytes(whole[:size])
        with pytest.raises(hy3core.FormatError):
            hy3core.GGUF(path)


def test_every_byte_of_the_header_at_its_extremes(tmp_path: Path) -> None:
    """Each byte before the data at 0, 127, 128 and 255: read or refused, never anything else."""
    whole = bytes(image().data)
    path = tmp_path / "byte.gguf"
    refused = 0
    for at in range(image().at("data", "a.weight").offset):
        for value in {0, 127, 128, 255} - {whole[at]}:
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                hy3core.GGUF(path)
            except (hy3core.FormatError, hy3core.UnsupportedError):
                refused += 1
    assert refused > 500


def test_limits(tmp_path: Path) -> None:
    """The counts that are too many even when the file has them."""
    path = tmp_path / "many.gguf"
    path.write_bytes(build_gguf((f"k{i}", i) for i in range(4096)).data)
    assert len(hy3core.GGUF(path).metadata) == 4096
    path.write_bytes(build_gguf((f"k{i}", i) for i in range(4097)).data)
    with pytest.raises(hy3core.FormatError, match=r"claims 4097 keys and 0 tensors; at most 4096 and 80000"):
        hy3core.GGUF(path)
    path.write_bytes(build_gguf({}, ((f"t{i}", (1,), "i8", b"x") for i in range(80001))).data)
    with pytest.raises(hy3core.FormatError, match=r"claims 0 keys and 80001 tensors"):
        hy3core.GGUF(path)


class TestNoFile:
    def test_no_permission(self) -> None:
        """In a child that has given up root's rights, if it had them: for root nothing is forbidden."""
        with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to other users altogether
            os.chmod(folder, 0o755)
            path = Path(folder) / "secret.gguf"
            path.write_bytes(image().data)
            path.chmod(0)
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                if os.getuid() == 0:
                    os.setuid(65534)
                try:
                    hy3core.GGUF(path)
                except hy3core.FileError as error:
                    os.write(writer, str(error).encode())
                os._exit(0)
            os.close(writer)
            os.waitpid(child, 0)
            with os.fdopen(reader) as pipe:
                message = pipe.read()
        assert (
            message == f"{path}: cannot be opened: Permission denied. Give this user permission to read it."
        )

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(
            hy3core.FileError, match=r"none.gguf: cannot be opened: No such file.*Check the path"
        ):
            hy3core.GGUF(tmp_path / "none.gguf")

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(hy3core.FileError, match=rf"{tmp_path}: is a directory\. Give the path of a file"):
            hy3core.GGUF(tmp_path)

    def test_empty(self, tmp_path: Path) -> None:
        (tmp_path / "empty.gguf").touch()
        with pytest.raises(hy3core.FormatError, match=r"empty.gguf: is empty"):
            hy3core.GGUF(tmp_path / "empty.gguf")

    def test_fifo_does_not_hang(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(hy3core.FileError, match=r"not a regular file"):
            hy3core.GGUF(tmp_path / "fifo")

    def test_device(self) -> None:
        with pytest.raises(hy3core.FileError, match=r"/dev/zero: is not a regular file"):
            hy3core.GGUF("/dev/zero")

    def test_empty_path(self) -> None:
        with pytest.raises(hy3core.InvalidArgumentError, match=r"path is empty"):
            hy3core.GGUF("")
