"""The readers of native/quant against golden floats of the `gguf` package (data/quant/make_dequant.py)."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.quant_samples import TYPES, random_bytes

import hy3core

GOLDEN = Path(__file__).parent.parent / "data" / "quant" / "dequant.npz"


def bits(values: np.ndarray) -> np.ndarray:
    """float32 as integers, every NaN the same: which NaN a product yields depends on the operand order."""
    return np.where(np.isnan(values), np.uint32(0x7FC00000), values.view(np.uint32))


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return dict(file)


@pytest.mark.parametrize("name", TYPES)
def test_equal_to_the_bit(name: str, golden: dict[str, np.ndarray], report: Callable[[str], None]) -> None:
    blocks, values = golden[f"{name}.blocks"], golden[f"{name}.values"]
    got = hy3core.dequantize(blocks.tobytes(), name, values.size)
    assert np.array_equal(bits(got), bits(values))
    report(f"dequantize {name}: {values.size} golden values equal to the bit")


def test_every_type_with_a_reader_has_golden_data() -> None:
    readable = {name for name, info in hy3core.types().items() if info.dequantizable}
    assert readable == {*TYPES, "q8_0_hy3"}


def test_types_have_the_geometry_of_the_files() -> None:
    types = hy3core.types()
    for name, (type_id, elements, size, _) in TYPES.items():
        assert (types[name].id, types[name].block, types[name].nbytes) == (type_id, elements, size)


def test_the_original_engines_q8_0_has_a_float32_scale() -> None:
    scales = np.array([1.5, -3e-9, 0.0, 7e30], dtype=np.float32)
    codes = random_bytes(1, 4 * 32).view(np.int8).reshape(4, 32)
    blocks = np.concatenate([scales.view(np.uint8).reshape(4, 4), codes.view(np.uint8)], axis=1)
    got = hy3core.dequantize(blocks.tobytes(), "q8_0_hy3", 128)
    assert np.array_equal(got, (scales[:, None] * codes.astype(np.float32)).ravel())


def test_every_float16_is_read_exactly() -> None:
    every = np.arange(65536, dtype=np.uint16)
    got = hy3core.dequantize(every.tobytes(), "f16", every.size)
    assert np.array_equal(bits(got), bits(every.view(np.float16).astype(np.float32)))


def test_blocks_may_lie_at_any_address() -> None:
    for name, (_, elements, size, _) in TYPES.items():
        padded = bytearray(1 + 2 * size)
        padded[1:] = random_bytes(2, 2 * size).tobytes()
        aligned = hy3core.dequantize(bytes(padded[1:]), name, 2 * elements)
        assert np.array_equal(
            bits(hy3core.dequantize(memoryview(padded)[1:], name, 2 * elements)), bits(aligned)
        )


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "f64"])
def test_integers_and_doubles_are_refused(name: str) -> None:
    size = hy3core.types()[name].nbytes
    with pytest.raises(hy3core.UnsupportedError, match=name):
        hy3core.dequantize(bytes(size), name, 1)


def test_part_of_a_block_is_refused() -> None:
    with pytest.raises(hy3core.Error):
        hy3core.dequantize(bytes(144), "q4_k", 255)
