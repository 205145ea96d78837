"""Both CPU backends against logits, hidden states and MTP logits of `transformers`, on the models in
data/forward.

What the torch-less test suite knows of the truth; made by tests/data/forward/make.py. Float weights, so
everything is within 1e-4 of the largest magnitude.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.compare import relative_error

import hy3core

DATA = Path(__file__).parents[1] / "data/forward"
LENGTHS = (1, 2, 63, 64, 65, 300)
TOLERANCE = 1e-4
BACKENDS = ("reference", "cpu")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["plain", "mtp", "tied", "yarn"])
def test_logits_and_hidden(name: str, backend: str, report: Callable[[str], None]) -> None:
    golden = np.load(DATA / f"{name}.npz")
    model = hy3core.Model(str(DATA / f"{name}.gguf"), backend=backend)
    worst = 0.0
    for length in LENGTHS:
        session = model.session(ctx=320, kv="f32")
        logits = session.eval(golden[f"tokens_{length}"].tolist(), logits="all")
        error = relative_error(logits[golden[f"positions_{length}"]], golden[f"logits_{length}"])
        last = relative_error(session.hidden, golden[f"hidden_{length}"][-1])
        worst = max(worst, error, last)
    report(f"golden {name} {backend}: within {worst:.1e} of transformers (limit {TOLERANCE:.0e})")
    assert worst < TOLERANCE


@pytest.mark.parametrize("backend", BACKENDS)
def test_mtp_logits(backend: str, report: Callable[[str], None]) -> None:
    """At every kept position: the context up to it, then the logits were the next token to follow."""
    golden = np.load(DATA / "mtp.npz")
    model = hy3core.Model(str(DATA / "mtp.gguf"), backend=backend)
    worst = 0.0
    for length in LENGTHS[1:]:
        tokens = golden[f"tokens_{length}"].tolist()
        session = model.session(ctx=320, kv="f32", mtp=True)
        for position, expected in zip(
            golden[f"mtp_positions_{length}"], golden[f"mtp_logits_{length}"], strict=True
        ):
            session.eval(tokens[session.position : position + 1], logits="none")
            worst = max(worst, relative_error(session.mtp_logits(tokens[position + 1]), expected))
    report(f"golden mtp {backend}: MTP logits within {worst:.1e} of torch (limit {TOLERANCE:.0e})")
    assert worst < TOLERANCE
