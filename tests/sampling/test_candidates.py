"""Which tokens can be drawn at all, exactly; greedy choice; the repetition penalty; what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.numpy_sampling import probabilities

import hy3core

Logits = Sequence[float]


def sample(
    logits: Logits, recent: Sequence[int] = (), position: int = 0, choice: int = 0, **sampling: Any
) -> int:
    return hy3core.sample(
        np.array(logits, np.float32), hy3core.Sampling(**sampling), list(recent), position, choice=choice
    )


def drawn(logits: Logits, draws: int = 400, **sampling: Any) -> set[int]:
    return {sample(logits, position=i, **{"temperature": 1.0} | sampling) for i in range(draws)}


def test_greedy_takes_the_largest() -> None:
    assert sample([0, 3, 1]) == 1
    assert sample([-5, -3, -9]) == 1


def test_greedy_takes_the_lowest_id_of_equals() -> None:
    assert sample([1, 4, 4, 4]) == 1
    assert sample([0, -0.0, 0]) == 0
    assert sample([7] * 1000) == 0


def test_top_k_is_exact_among_equals() -> None:
    assert drawn([1, 2, 2, 2, 0], top_k=2) == {1, 2}
    assert drawn([3, 2, 2, 2, 0], top_k=3) == {0, 1, 2}
    assert drawn([1] * 50, top_k=4) == {0, 1, 2, 3}
    assert drawn([1, 2, 3], top_k=1) == {2}


def test_top_p_keeps_the_one_that_crosses() -> None:
    logits = np.log([0.5, 0.25, 0.125, 0.0625, 0.0625])
    assert drawn(logits, top_p=0.4) == {0}
    assert drawn(logits, top_p=0.6) == {0, 1}
    assert drawn(logits, top_p=0.8) == {0, 1, 2}
    assert drawn(logits, top_p=0.9) == {0, 1, 2, 3}  # of two equals the lower id
    assert drawn(logits, top_p=0.95) == {0, 1, 2, 3, 4}


def test_top_p_among_equals() -> None:
    assert drawn([2] * 8, top_p=0.3) == {0, 1, 2}  # 3 of 8 hold 0.375, 2 only 0.25
    assert drawn([2] * 8, top_p=1e-6) == {0}


def test_min_p_is_relative_to_the_largest() -> None:
    logits = np.log([0.5, 0.26, 0.24])
    assert drawn(logits, min_p=0.5) == {0, 1}
    assert drawn(logits, min_p=0.4) == {0, 1, 2}
    assert drawn([4, 4, 1], min_p=1.0) == {0, 1}


def test_top_k_comes_before_top_p() -> None:
    """0.4 is less than half of all, but more than half of the two that top-k leaves."""
    logits = np.log([0.4, 0.3, 0.3])
    assert drawn(logits, top_p=0.5) == {0, 1}
    assert drawn(logits, top_p=0.5, top_k=2) == {0}


def test_temperature_comes_before_min_p() -> None:
    logits = np.log([0.8, 0.2])
    assert drawn(logits, min_p=0.4) == {0}
    assert drawn(logits, min_p=0.4, temperature=2.0) == {0, 1}


def test_penalty_divides_positive_and_multiplies_negative_logits() -> None:
    assert sample([4, 3], recent=[0], repeat_penalty=1.3) == 0
    assert sample([4, 3], recent=[0], repeat_penalty=1.4) == 1
    assert sample([-2, -3], recent=[0], repeat_penalty=1.4) == 0
    assert sample([-2, -3], recent=[0], repeat_penalty=1.6) == 1


def test_penalty_counts_a_token_once() -> None:
    assert sample([4, 3], recent=[0] * 60, repeat_penalty=1.3) == 0


def test_penalty_looks_back_64_tokens() -> None:
    assert sample([4, 3, 0], recent=[0] + [2] * 63, repeat_penalty=2.0) == 1
    assert sample([4, 3, 0], recent=[0] + [2] * 64, repeat_penalty=2.0) == 0


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    logits=st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 2.5]), min_size=1, max_size=40),
    top_k=st.integers(0, 45),
    top_p=st.sampled_from([0.052, 0.33, 0.61, 0.87, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.03, 0.31, 0.77]),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    penalty=st.sampled_from([1.0, 1.25]),
    data=st.data(),
)
def test_nothing_outside_the_candidates(
    logits: list[float],
    top_k: int,
    top_p: float,
    min_p: float,
    temperature: float,
    penalty: float,
    data: st.DataObject,
) -> None:
    """On logits full of ties, every draw has a probability in the sorted, written-out chain."""
    recent = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=70))
    chain = {
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "temperature": temperature,
        "repeat_penalty": penalty,
    }
    possible = set(np.flatnonzero(probabilities(np.array(logits, np.float32), recent, **chain)).tolist())
    got = {sample(logits, recent, position=i, **chain) for i in range(60)}
    assert got <= possible
    if (
        len(possible) <= 2
        and min(probabilities(np.array(logits, np.float32), recent, **chain)[list(possible)]) > 0.2
    ):
        assert got == possible


def test_same_key_same_token() -> None:
    logits = np.random.default_rng(0).standard_normal(1000)
    for seed in (0, 1, 2**63, 2**64 - 1):
        first = [sample(logits, position=i, temperature=1.0, seed=seed) for i in range(20)]
        assert first == [sample(logits, position=i, temperature=1.0, seed=seed) for i in range(20)]
        assert len(set(first)) > 10


def test_adding_impossible_tokens_changes_nothing() -> None:
    """The draw depends on the candidates, not on how many others there are: padding rows are harmless."""
    logits = np.random.default_rng(1).standard_normal(50).tolist()
    for i in range(50):
        assert sample(logits, position=i, temperature=1.0) == sample(
            logits + [-1e4] * 99, position=i, temperature=1.0
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", float("nan")), ("temperature", float("inf")), ("top_k", -1),
        ("top_p", 0.0), ("top_p", 1.5), ("top_p", float("nan")), ("min_p", -0.1), ("min_p", 1.1),
        ("repeat_penalty", 0.0), ("repeat_penalty", float("nan")),
    ],
)  # fmt: skip
def test_bad_values_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises((ValueError, hy3core.Error), match=name):
        sample([1, 2], **{name: value})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_an_error(bad: float, temperature: float) -> None:
    with pytest.raises(hy3core.Error, match="not finite"):
        sample([1, bad, 2], temperature=temperature)
