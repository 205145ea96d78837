"""The writers of native/quant: their error against llama.cpp's (data/quant/make_llama_sse.py), and what
every writer must do with any finite input."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.quant_samples import (
    ROWS,
    SEARCHED,
    normal,
    sample_importance,
    sample_rows,
    squared_error,
)

import hy3core

GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "quant" / "llama_sse.json").read_text("utf-8"))
WRITTEN = ("f32", "f16", "bf16", *SEARCHED)
BOUND = 1.02  # times llama.cpp's squared error

# The largest magnitude that a type's scales can reach with both signs.
LARGEST = {
    "q8_0": 65504 * 127,
    "q4_0": 65504 * 7,
    "q2_k": 65504 * 15,
    "q3_k": 65504 * 32 * 3,
    "q4_k": 65504 * 63,
    "q5_k": 65504 * 63,
    "q6_k": 65504 * 127 * 31,
    "iq4_nl": 65504 * 113,
    "iq4_xs": 65504 * 31 * 113,
    "mxfp4": 3.4028234e38,
    "f16": 65504,
    "bf16": 3.38e38,
    "f32": 3.4028234e38,
}


def through(rows: np.ndarray, name: str, importance: np.ndarray | None = None) -> np.ndarray:
    """What is read back after writing."""
    return hy3core.dequantize(hy3core.quantize(rows, name, importance), name, rows.size).reshape(rows.shape)


@pytest.mark.parametrize("name", SEARCHED)
def test_squared_error_against_llama_cpp(name: str, report: Callable[[str], None]) -> None:
    ratios = {}
    for seed, kind in enumerate(ROWS):
        rows = sample_rows(kind, seed)
        total, plain, weighted = GOLDEN[name][kind]
        assert squared_error(rows, 0 * rows, None) == pytest.approx(total, rel=1e-6), (
            "not the golden file's rows"
        )
        for importance, theirs in ((None, plain), (sample_importance(50 + seed), weighted)):
            ours = squared_error(rows, through(rows, name, importance), importance)
            ratios[kind + (" weighted" if importance is not None else "")] = ours / theirs
    # Of float32 subnormals next to nothing can be kept: 1 by nature, and not worth a report.
    worst = max((kind for kind in ratios if "denormal" not in kind), key=lambda kind: ratios[kind])
    report(
        f"quantize {name}: squared error over llama.cpp's at worst {ratios[worst]:.4f} ({worst}), "
        f"normal rows {ratios['normal']:.4f}, weighted {ratios['normal weighted']:.4f}"
    )
    assert max(ratios.values()) <= BOUND


def test_float16_rounds_as_numpy() -> None:
    rows = np.concatenate([sample_rows(kind, 7).ravel()[:1024] for kind in ROWS])
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = (halves + np.nextafter(halves.astype(np.float16), np.float16(np.inf)).astype(np.float32)) / 2
    around = [ties, np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))]
    rows = np.concatenate([rows, *around, -ties]).reshape(1, -1)
    rows = rows[np.abs(rows) < 65520].reshape(1, -1)
    got = np.frombuffer(hy3core.quantize(rows, "f16"), dtype=np.uint16)
    assert np.array_equal(got, rows.astype(np.float16).view(np.uint16).ravel())


def test_bfloat16_rounds_to_the_nearest_even() -> None:
    upper = np.arange(0, 0x7F70, 3, dtype=np.uint32) << np.uint32(16)
    for low, carries in ((0x0000, 0), (0x7FFF, 0), (0x8001, 1), (0xFFFF, 1), (0x8000, None)):
        rows = (upper | np.uint32(low)).view(np.float32).reshape(1, -1)
        got = np.frombuffer(hy3core.quantize(-rows, "bf16"), dtype=np.uint16)
        kept = (upper >> np.uint32(16)) | np.uint32(0x8000)
        assert np.array_equal(got, kept + (kept & 1 if carries is None else carries))


@pytest.mark.parametrize("name", WRITTEN)
def test_zeros_stay_zeros(name: str) -> None:
    rows = np.zeros((2, 512), dtype=np.float32)
    rows[1, ::2] = -0.0
    assert not through(rows, name).any()


@pytest.mark.parametrize("name", SEARCHED)
@pytest.mark.parametrize("value", [1.0, -1.0, 3.7e-3, -3.7e-3])
def test_equal_values_and_single_spikes(name: str, value: float) -> None:
    rows = np.full((3, 512), value, dtype=np.float32)
    rows[1, :] = 0.0
    rows[1, 77] = value
    rows[2, 256:] = 0.0
    tolerance = 0.21 if name == "mxfp4" else 0.02  # its scale is a power of two
    assert np.abs(through(rows, name) - rows).max() <= tolerance * abs(value)


@pytest.mark.parametrize("name", SEARCHED)
def test_the_largest_storable_values(name: str) -> None:
    rows = (normal(3, 512).reshape(2, 256) * LARGEST[name] / 20).astype(np.float32)
    rows[0, 5], rows[0, 6] = LARGEST[name], -LARGEST[name]
    got = through(rows, name).astype(np.float64)
    assert np.isfinite(got).all()
    assert (got[0, 5] - rows[0, 5]) / LARGEST[name] == pytest.approx(0, abs=0.26 if name == "mxfp4" else 0.13)
    if name != "mxfp4":  # which reaches as far as float32
        rows[1, 9] = LARGEST[name] * 1.01
        with pytest.raises(hy3core.Error, match=rf"Row 1, column 9 .* too large for type {name}.*bf16"):
            hy3core.quantize(rows, name)


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_a_number_is_an_error_that_says_where(name: str, value: float) -> None:
    rows = np.ones((4, 256), dtype=np.float32)
    rows[2, 201] = value
    what = "NaN" if np.isnan(value) else "infinite"
    with pytest.raises(hy3core.Error, match=f"Row 2, column 201 is {what}"):
        hy3core.quantize(rows, name)


def test_the_first_of_several_bad_rows_is_named() -> None:
    rows = np.ones((300, 1024), dtype=np.float32)
    rows[[70, 150, 299], 3] = np.nan
    for threads in (1, 2, 5):
        with pytest.raises(hy3core.Error, match="Row 70, column 3 "):
            hy3core.convert_rows(rows, "f32", "q8_0", 300, 1024, bytearray(300 * 1088), None, threads)


@pytest.mark.parametrize(
    "name", ["q4_1", "q5_0", "q5_1", "q8_0_hy3", "iq1_s", "iq1_m", "iq2_xxs", "iq3_s", "i8"]
)
def test_types_that_are_only_read(name: str) -> None:
    with pytest.raises(hy3core.UnsupportedError, match=f"{name} can be read but not written"):
        hy3core.quantize(np.ones((1, 256), dtype=np.float32), name)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_importance(bad: float) -> None:
    importance = np.ones(256, dtype=np.float32)
    importance[17] = bad
    with pytest.raises(hy3core.Error, match="importance of column 17"):
        hy3core.quantize(np.ones((1, 256), dtype=np.float32), "q4_k", importance)


def test_a_row_that_blocks_do_not_divide() -> None:
    with pytest.raises(hy3core.Error, match="multiple of"):
        hy3core.quantize(np.ones((1, 255), dtype=np.float32), "q4_k")


@pytest.mark.parametrize("name", SEARCHED)
def test_importance(name: str) -> None:
    rows, importance = sample_rows("heavy", 21), sample_importance(22)
    plain = hy3core.quantize(rows, name)
    # Only ratios within a block count, and none is as good as all.
    assert hy3core.quantize(rows, name, np.full(1024, 7.5)) == plain
    assert hy3core.quantize(rows, name, np.zeros(1024)) == plain
    weighted = through(rows, name, importance)
    ratio = squared_error(rows, weighted, importance) / squared_error(rows, through(rows, name), importance)
    assert ratio == 1.0 if name == "q8_0" else ratio < 0.97
    # A column without importance gets a value all the same.
    importance[3] = 0.0
    got = through(rows, name, importance)
    assert np.isfinite(got).all() and np.corrcoef(got[:, 3], rows[:, 3])[0, 1] > 0.5


@pytest.mark.parametrize("name", WRITTEN)
def test_independent_of_threads_and_neighbours(name: str) -> None:
    rows, importance = sample_rows("heavy", 31, rows=130, cols=1024), sample_importance(32)
    alone = b"".join(hy3core.quantize(rows[r : r + 1], name, importance) for r in range(len(rows)))
    for threads in (1, 2, 3, 8):
        out = bytearray(len(alone))
        hy3core.convert_rows(rows, "f32", name, *rows.shape, out, importance, threads)
        assert out == alone


@pytest.mark.parametrize("source", ["bf16", "f16", "q8_0", "q4_k", "q8_0_hy3"])
def test_conversion_is_reading_and_writing(source: str) -> None:
    if source == "q8_0_hy3":
        blocks = np.zeros((128, 36), dtype=np.uint8)
        blocks[:, :4] = np.abs(normal(41, 128) * 0.01).astype(np.float32).view(np.uint8).reshape(-1, 4)
        blocks[:, 4:] = (
            (normal(42, 128 * 32) * 30).clip(-127, 127).astype(np.int8).view(np.uint8).reshape(-1, 32)
        )
        data = blocks.tobytes()
    else:
        data = hy3core.quantize(sample_rows("normal", 43, rows=4), source)
    values = hy3core.dequantize(data, source, 4096).reshape(4, 1024)
    for target in ("f32", "bf16", "q8_0", "q6_k"):
        expected = data if target == source else hy3core.quantize(values, target)
        out = bytearray(len(expected))
        hy3core.convert_rows(data, source, target, 4, 1024, out)
        assert out == expected


def test_a_copied_float_tensor_is_checked_too() -> None:
    data = np.array([[1, 2], [3, 0x7F80]], dtype=np.uint16)  # bfloat16 bits; the last is infinity
    with pytest.raises(hy3core.Error, match="Row 1, column 1 is infinite"):
        hy3core.convert_rows(data, "bf16", "bf16", 2, 2, bytearray(8))


def floats(limit: float) -> st.SearchStrategy[np.ndarray]:
    """Rows of 256 with anything finite in them: both zeros, subnormals, huge and tiny side by side."""
    magnitude = float(np.float32(limit))
    anything = st.floats(-magnitude, magnitude, width=32)
    nearby = st.floats(-2.0, 2.0, width=32)
    odd = st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 6e-8, -3e-8, 1e-6, magnitude, -magnitude])
    element = st.one_of(nearby, anything, odd)
    return hnp.arrays(np.float32, (1, 256), elements=element.map(np.float32), fill=element.map(np.float32))


@pytest.mark.parametrize("name", SEARCHED)
def test_any_finite_input(name: str) -> None:
    """Finite output, and never a larger error than zeros would make, block by block."""
    block = hy3core.types()[name].block

    @settings(max_examples=60, deadline=None)
    @given(rows=floats(LARGEST[name]), heavy=st.one_of(st.none(), st.integers(0, 255)))
    def check(rows: np.ndarray, heavy: int | None) -> None:
        importance = None
        if heavy is not None:
            importance = np.full(256, 1e-3, dtype=np.float32)
            importance[heavy] = 1e4
        got = through(rows, name, importance)
        assert np.isfinite(got).all()
        weights = np.ones(256) if importance is None else np.maximum(importance, 1e-6 * importance.max())
        energy = (rows.astype(np.float64) ** 2 * weights).reshape(-1, block).sum(axis=1)
        error = ((rows.astype(np.float64) - got) ** 2 * weights).reshape(-1, block).sum(axis=1)
        assert (error <= energy * (1 + 1e-5)).all()

    check()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50))
def test_float32_is_kept(values: list[float]) -> None:
    rows = np.array([values], dtype=np.float32)
    assert hy3core.quantize(rows, "f32") == rows.tobytes()


@settings(deadline=None)
@given(hnp.arrays(np.float32, (1, 32), elements=st.floats(-1e5, 1e5, width=32)))
def test_q8_0_stays_within_half_a_step(rows: np.ndarray) -> None:
    top = float(np.abs(rows).max())
    step = max(top / 127 * (1 + 2.0**-10), 2.0**-24)
    assert np.abs(through(rows, "q8_0").astype(np.float64) - rows).max() <= step * 0.501 + top * 2.0**-11
