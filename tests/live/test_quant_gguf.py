"""native/quant against the `gguf` package: readers on many random blocks, and the generated codebooks."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from support.quant_samples import SEARCHED, TYPES, sample_blocks, sample_importance, sample_rows

import hy3core

pytestmark = pytest.mark.live
ROOT = Path(__file__).parent.parent.parent


def peer(blocks: np.ndarray, name: str) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return gguf.dequantize(blocks, gguf.GGMLQuantizationType(TYPES[name][0])).ravel()


def differing(a: np.ndarray, b: np.ndarray) -> int:
    """Values that differ in any bit; a NaN equals a NaN."""
    return int(np.count_nonzero((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("name", TYPES)
def test_random_blocks_are_equal_to_the_bit(name: str, report: Callable[[str], None]) -> None:
    elements = TYPES[name][1]
    blocks = sample_blocks(name, 2**18 // elements, seed=7)
    expected = peer(blocks, name)
    got = hy3core.dequantize(blocks.tobytes(), name, expected.size)
    assert differing(got, expected) == 0
    report(f"dequantize {name}: {expected.size} values of {len(blocks)} blocks equal to gguf's to the bit")


@pytest.mark.parametrize("name", TYPES)
def test_random_scales_are_equal_to_the_bit(name: str) -> None:
    """Every bit random: scales of any size, infinities and NaNs among them."""
    _, elements, size, _ = TYPES[name]
    blocks = np.random.default_rng(8).integers(0, 256, (2**17 // elements, size), dtype=np.uint8)
    expected = peer(blocks, name)
    assert differing(hy3core.dequantize(blocks.tobytes(), name, expected.size), expected) == 0


@pytest.mark.parametrize("name", ["f16", "bf16", *SEARCHED])
def test_gguf_reads_what_is_written_here(name: str) -> None:
    rows = sample_rows("heavy", 9)
    data = hy3core.quantize(rows, name, sample_importance(10))
    expected = peer(np.frombuffer(data, dtype=np.uint8), name)
    assert differing(hy3core.dequantize(data, name, rows.size), expected) == 0


def test_the_codebooks_are_what_the_generator_writes(tmp_path: Path) -> None:
    again = tmp_path / "codebooks.cpp"
    subprocess.run([sys.executable, ROOT / "tools" / "gen_iq_codebooks.py", again], check=True)
    assert again.read_bytes() == (ROOT / "native" / "quant" / "codebooks.cpp").read_bytes()
