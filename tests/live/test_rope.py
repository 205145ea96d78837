"""RoPE's table, plain and with YaRN, against `transformers`' own functions."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from live.torch_hy3 import rope_table
from support.rope_cases import CASES, open_model

pytestmark = pytest.mark.live


@pytest.mark.parametrize("name", CASES)
def test_the_table_is_that_of_transformers(name: str, tmp_path: Path, report: Callable[[str], None]) -> None:
    expected, factor = rope_table(*CASES[name])
    got, scale = open_model(tmp_path, name).rope
    error = float(np.abs(got / expected - 1).max())
    report(f"RoPE table {name}: within {error:.1e} of transformers (limit 1e-6)")
    assert error < 1e-6
    assert scale == pytest.approx(factor, rel=1e-6)
