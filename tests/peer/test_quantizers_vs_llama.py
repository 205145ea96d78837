"""The writers of native/quant against llama.cpp's own, on rows that no golden file holds."""

from collections.abc import Callable

import numpy as np
import pytest
from support.llama_quantize import llama_quantize
from support.quant_samples import ROWS, SEARCHED, TYPES, sample_importance, sample_rows, squared_error

import hy3core

pytestmark = pytest.mark.peer
BOUND = 1.02


@pytest.mark.parametrize("name", SEARCHED)
def test_squared_error(name: str, report: Callable[[str], None]) -> None:
    ratios = {}
    for kind in ROWS:
        for seed in (1001, 2002):
            rows = sample_rows(kind, seed, rows=16, cols=1536)
            for importance in (None, sample_importance(seed + 7, 1536)):
                errors = [
                    squared_error(rows, hy3core.dequantize(data, name, rows.size), importance)
                    for data in (
                        hy3core.quantize(rows, name, importance),
                        llama_quantize(rows, TYPES[name], importance),
                    )
                ]
                ratios[f"{kind}{' weighted' if importance is not None else ''} {seed}"] = (
                    errors[0] / errors[1]
                )
    worst = max((key for key in ratios if "denormal" not in key), key=lambda key: ratios[key])
    report(f"quantize {name}: squared error over llama.cpp's at worst {ratios[worst]:.4f} ({worst})")
    assert max(ratios.values()) <= BOUND


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_rounding_is_the_same(name: str) -> None:
    rows = np.concatenate([sample_rows(kind, 3003) for kind in ROWS])
    assert hy3core.quantize(rows, name) == llama_quantize(rows, TYPES[name], None)
