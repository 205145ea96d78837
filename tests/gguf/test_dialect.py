"""The original hy3 engine's files: a tensor per expert, Q8_0 blocks of 36 bytes under the id of the 34."""

import struct
from pathlib import Path

import numpy as np
import pytest
from support.gguf_files import Tensor, write_gguf

import hy3core

KEYS = {"general.architecture": "hy_v3", "hy_v3.rope.freq_base": 11158840}
EXPERT = "blk.1.ffn_gate_exps.0.gate_proj.weight"


def blocks(count: int, size: int) -> bytes:
    """Blocks of scale 0.5 and the values 0 to 31, in one of the two layouts."""
    scale = struct.pack("<f", 0.5) if size == 36 else struct.pack("<e", 0.5)
    return (scale + bytes(range(32))) * count


def file_of(tmp_path: Path, tensors: list[Tensor]) -> hy3core.GGUF:
    return hy3core.GGUF(write_gguf(tmp_path / "m.gguf", KEYS, tensors))


def q8_0(name: str, size: int, rows: int = 16) -> Tensor:
    return (name, (rows, 64), "q8_0", blocks(2 * rows, size))


def values(file: hy3core.GGUF, name: str) -> np.ndarray:
    info = next(t for t in file.tensors if t.name == name)
    return hy3core.dequantize(file.tensor(name), info.type, int(np.prod(info.shape)))


EXPECTED = np.tile(np.arange(32, dtype=np.float32) / 2, 32)


@pytest.mark.parametrize("part", ["gate", "up", "down"])
def test_known_by_names(tmp_path: Path, part: str) -> None:
    name = f"blk.12.ffn_{part}_exps.191.{part}_proj.weight"
    file = file_of(tmp_path, [("output_norm.weight", (64,), "f32", bytes(256)), q8_0(name, 36)])
    assert file.dialect == "hy3_original"
    info = file.tensors[1]
    assert (info.type, info.shape, info.nbytes) == ("q8_0_hy3", (64, 16), 32 * 36)
    assert np.array_equal(values(file, name), EXPECTED)


def test_known_by_sizes(tmp_path: Path) -> None:
    """No expert in the file: the room that each tensor has says it."""
    file = file_of(tmp_path, [q8_0("token_embd.weight", 36), q8_0("output.weight", 36)])
    assert file.dialect == "hy3_original"
    assert np.array_equal(values(file, "output.weight"), EXPECTED)


def test_standard_files_are_not_mistaken(tmp_path: Path) -> None:
    file = file_of(tmp_path, [q8_0("token_embd.weight", 34), q8_0("output.weight", 34)])
    assert file.dialect == "standard"
    assert [t.type for t in file.tensors] == ["q8_0", "q8_0"]
    assert np.array_equal(values(file, "output.weight"), EXPECTED)


def test_stacked_experts_are_standard(tmp_path: Path) -> None:
    names = [
        "blk.1.ffn_gate_exps.weight",
        "blk.1.ffn_gate_exps.0.weight",
        "blk.x.ffn_gate_exps.0.gate_proj.weight",
    ]
    file = file_of(tmp_path, [q8_0(name, 34) for name in names])
    assert file.dialect == "standard"


def test_sizes_that_tell_nothing(tmp_path: Path) -> None:
    """One block is padded to 64 bytes in either layout: standard, unless the names say otherwise."""
    one = ("a", (1, 32), "q8_0", blocks(1, 34))
    assert file_of(tmp_path, [one]).tensors[0].type == "q8_0"


def test_original_names_over_standard_blocks(tmp_path: Path) -> None:
    """Requantized by another tool, the names kept."""
    file = file_of(tmp_path, [q8_0("token_embd.weight", 34), q8_0(EXPERT, 34)])
    assert file.dialect == "hy3_original"
    assert [t.type for t in file.tensors] == ["q8_0", "q8_0"]
    assert np.array_equal(values(file, EXPERT), EXPECTED)


def test_truncated(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, [q8_0("token_embd.weight", 36), q8_0(EXPERT, 36)])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(hy3core.FormatError, match=rf"'{EXPERT}' of 1152 bytes .*past the end"):
        hy3core.GGUF(path)


def test_run_says_convert_first(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", KEYS, [q8_0("token_embd.weight", 36), q8_0(EXPERT, 36)])
    with pytest.raises(hy3core.UnsupportedError, match=r"original hy3 engine.*hy3 convert"):
        hy3core.Model(path)
