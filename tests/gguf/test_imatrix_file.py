"""Importance matrix files: what they say, and what is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.gguf_files import Tensor, build_gguf, write_gguf
from support.imatrix_files import KEYS, legacy_bytes, tensors, write_imatrix

import hy3core

RNG = np.random.default_rng(5)
ENTRIES = {
    "blk.1.ffn_down_exps.weight": (RNG.random((3, 64)), np.array([4, 0, 9])),
    "blk.0.attn_q.weight": (RNG.random((1, 32)), np.array([13])),
}


def test_the_gguf_layout(tmp_path: Path) -> None:
    file = hy3core.ImportanceMatrix(write_imatrix(tmp_path / "i.gguf", ENTRIES))
    assert file.names == ("blk.0.attn_q.weight", "blk.1.ffn_down_exps.weight")
    assert (file.chunks, file.datasets) == (5, ("a.txt", "dir/b.txt"))
    sums, counts = ENTRIES["blk.1.ffn_down_exps.weight"]
    for expert in (0, 2):
        got = file.mean_squares("blk.1.ffn_down_exps.weight", 64, 3, expert)
        assert got.tobytes() == (sums[expert].astype(np.float32) / np.float32(counts[expert])).tobytes()
    assert file.mean_squares("blk.1.ffn_down_exps.weight", 64, 3, 1) is None
    pooled = file.mean_squares("blk.1.ffn_down_exps.weight", 64, 3, None)
    np.testing.assert_allclose(pooled, sums.sum(axis=0) / 13, rtol=1e-6)


def test_one_count_for_all_experts(tmp_path: Path) -> None:
    """Older GGUF files; the sums come as one row."""
    sums = RNG.random((1, 3 * 64))
    file = hy3core.ImportanceMatrix(write_imatrix(tmp_path / "i.gguf", {"x": (sums, np.array([8]))}))
    got = file.mean_squares("x", 64, 3, 1)
    np.testing.assert_allclose(got, sums[0, 64:128] / 8, rtol=1e-6)
    np.testing.assert_allclose(
        file.mean_squares("x", 64, 3, None), sums.reshape(3, 64).mean(axis=0) / 8, rtol=1e-6
    )


def test_the_legacy_layout(tmp_path: Path) -> None:
    path = tmp_path / "i.dat"
    whole = legacy_bytes(ENTRIES)
    for cut in (0, len(b"a.txt") + 8):  # what follows the entries may be missing
        path.write_bytes(whole[: len(whole) - cut])
        file = hy3core.ImportanceMatrix(path)
        assert file.names == ("blk.0.attn_q.weight", "blk.1.ffn_down_exps.weight")
        assert (file.chunks, file.datasets) == ((0, ()) if cut else (7, ("a.txt",)))
        sums, counts = ENTRIES["blk.1.ffn_down_exps.weight"]
        got = file.mean_squares("blk.1.ffn_down_exps.weight", 64, 3, 2)
        np.testing.assert_allclose(got, sums[2] / counts[2], rtol=1e-6)
        assert set(file.mean_squares("blk.1.ffn_down_exps.weight", 64, 3, 1).tolist()) == {1.0}


@pytest.mark.parametrize(("cols", "n"), [(32, 3), (64, 1), (64, 4), (192, 1), (1, 3)])
def test_another_size_is_an_error_that_says_both(tmp_path: Path, cols: int, n: int) -> None:
    file = hy3core.ImportanceMatrix(write_imatrix(tmp_path / "i.gguf", ENTRIES))
    with pytest.raises(
        hy3core.FormatError, match=rf"ffn_down_exps.* 192 values and 3 counts.* {n} times {cols} "
    ):
        file.mean_squares("blk.1.ffn_down_exps.weight", cols, n)


def test_wrong_arguments(tmp_path: Path) -> None:
    file = hy3core.ImportanceMatrix(write_imatrix(tmp_path / "i.gguf", ENTRIES))
    for cols, n, matrix in ((0, 1, 0), (64, 0, 0), (64, 3, 3), (64, 3, -1)):
        with pytest.raises(hy3core.InvalidArgumentError):
            file.mean_squares("blk.1.ffn_down_exps.weight", cols, n, matrix)
    with pytest.raises(KeyError):
        file.mean_squares("nothing", 64)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


SUMS: Tensor = ("x.in_sum2", (1, 2), "f32", floats(1, 2))
COUNTS: Tensor = ("x.counts", (1, 1), "f32", floats(1))
BROKEN: list[tuple[str, list[Tensor], str]] = [
    ("no counts", [SUMS], r"x\.in_sum2 has no \.counts"),
    ("no sums", [COUNTS], r"x\.counts has no \.in_sum2"),
    ("nothing", [], r"no importance matrix in this file"),
    ("a model", [("output.weight", (1, 2), "f32", floats(1, 2))], r"no importance matrix in this file"),
    ("another type", [SUMS, ("x.counts", (1, 1), "f16", b"\0\0")], r"x\.counts is of type f16"),
    (
        "not a number",
        [("x.in_sum2", (1, 2), "f32", floats(1, float("nan"))), COUNTS],
        r"value 1 of x is -?nan",
    ),
    ("infinite", [("x.in_sum2", (1, 2), "f32", floats(float("inf"), 1)), COUNTS], r"value 0 of x is inf"),
    ("negative", [("x.in_sum2", (1, 2), "f32", floats(1, -1)), COUNTS], r"value 1 of x is -1"),
    ("bad count", [SUMS, ("x.counts", (1, 1), "f32", floats(-1))], r"a count of x is -1"),
    ("tiny count", [SUMS, ("x.counts", (1, 1), "f32", floats(1e-30))], r"a count of x is 1e-30"),
    ("uneven", [SUMS, ("x.counts", (3, 1), "f32", floats(1, 1, 1))], r"2 values and 3 counts"),
]


@pytest.mark.parametrize(
    ("content", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_broken_gguf_files(tmp_path: Path, content: list[Tensor], message: str) -> None:
    path = write_gguf(tmp_path / "i.gguf", KEYS, content)
    with pytest.raises(hy3core.FormatError, match=message) as raised:
        hy3core.ImportanceMatrix(path)
    assert str(path) in str(raised.value)


ENTRY = struct.pack("<i", 1) + b"x" + struct.pack("<ii", 1, 2) + floats(1, 2)
BROKEN_LEGACY = [
    (b"", "empty"),
    (b"\1\0", "needs 4 bytes"),
    (b"hello, this is some text", "neither a GGUF file nor"),
    (struct.pack("<i", 0) + ENTRY, "neither a GGUF file nor"),
    (struct.pack("<i", -1) + ENTRY, "neither a GGUF file nor"),
    (struct.pack("<i", 2**31 - 1) + ENTRY, "neither a GGUF file nor"),
    (struct.pack("<i", 2) + ENTRY * 2, "x occurs twice"),
    (struct.pack("<ii", 1, -5) + ENTRY, "has -5 bytes"),
    (struct.pack("<ii", 1, 2**31 - 1) + ENTRY, "has 2147483647 bytes"),
    (
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 2**31 - 1) + floats(1),
        "the values of 'x' needs",
    ),
    (struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, -1) + floats(1), "-1 values of 1 calls"),
    (struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", -1, 1) + floats(1), "1 values of -1 calls"),
    (
        struct.pack("<ii", 1, 1) + b"x" + struct.pack("<ii", 1, 1) + floats(float("nan")),
        "value 0 of x is -?nan",
    ),
]


@pytest.mark.parametrize(("data", "message"), BROKEN_LEGACY, ids=range(len(BROKEN_LEGACY)))
def test_broken_legacy_files(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "i.dat"
    path.write_bytes(data)
    with pytest.raises(hy3core.FormatError, match=message) as raised:
        hy3core.ImportanceMatrix(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(hy3core.FileError, match="Check the path"):
        hy3core.ImportanceMatrix(tmp_path / "none")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_byte_may_be_anything(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Either it opens, and then every number is a usable one, or it is an error with a message."""
    whole = (
        legacy_bytes(ENTRIES) if data.draw(st.booleans()) else bytes(build_gguf(KEYS, tensors(ENTRIES)).data)
    )
    changed = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("fuzz") / "i"
    path.write_bytes(changed)
    try:
        file = hy3core.ImportanceMatrix(path)
    except hy3core.Error as error:
        assert str(path) in str(error)
        return
    for name in file.names:
        for cols, n in ((64, 3), (32, 1)):
            try:
                got = file.mean_squares(name, cols, n, n - 1)
            except hy3core.FormatError:
                continue
            assert got is None or (np.isfinite(got).all() and (got >= 0).all())
