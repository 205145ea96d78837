"""What follows from measured costs of drafts."""

import pytest

from hy3.bench_drafts import Drafting

DRAFTING = Drafting(
    step_seconds=0.1, steps=(1.3, 1.6, 3.9), draft=0.1, drafts=((10, 9), (9, 6), (0, 0)), tokens=20
)


@pytest.mark.parametrize(
    ("depth", "cost", "break_even"),
    # 1 + a = 1.4; 1 + a + a^2 = 1.8; no share makes 4.2 of 4 tokens.
    [(1, 1.4, 0.4), (2, 1.8, 0.524695), (3, 4.2, None)],
)
def test_break_even(depth: int, cost: float, break_even: float | None) -> None:
    assert DRAFTING.cost(depth) == pytest.approx(cost)
    assert DRAFTING.break_even(depth) == (break_even and pytest.approx(break_even, abs=1e-6))


def test_drafts_that_cost_nothing_always_pay() -> None:
    free = Drafting(step_seconds=0.1, steps=(0.9,), draft=0.0, drafts=((0, 0),), tokens=1)
    assert free.break_even(1) == pytest.approx(0.0, abs=1e-6)


def test_right() -> None:
    assert DRAFTING.right(1) == 0.9
    assert DRAFTING.right(3) is None
