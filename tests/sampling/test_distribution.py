"""The sampler draws from the distribution that the chain defines: chi-square over many positions, seeds and
choices.

All seeds are fixed, so the tests give the same result every time; a right sampler was within LIMIT on them,
and the limit is one that chance passes once in 30,000.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.numpy_sampling import chi_square_excess, probabilities

import hy3core

DRAWS = 20_000
LIMIT = 4.0  # standard deviations
VOCAB = 200

CHAINS: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 0.3": {"temperature": 0.3},
    "temperature 2.5": {"temperature": 2.5},
    "top-k": {"top_k": 17},
    "top-k beyond the vocabulary": {"top_k": 5000},
    "top-p": {"top_p": 0.7},
    "min-p": {"min_p": 0.05},
    "penalty": {"repeat_penalty": 1.8},
    "penalty below 1": {"repeat_penalty": 0.6},
    "all": {"temperature": 0.8, "top_k": 60, "top_p": 0.9, "min_p": 0.02, "repeat_penalty": 1.3},
    # the order shows: top-p of what top-k left, min-p after the temperature
    "top-k before top-p": {"top_k": 5, "top_p": 0.6},
    "temperature before min-p": {"temperature": 3.0, "min_p": 0.3},
    "temperature before top-p": {"temperature": 3.0, "top_p": 0.5},
}


def make_logits(seed: int) -> np.ndarray:
    return (2 * np.random.default_rng(seed).standard_normal(VOCAB)).astype(np.float32)


def draw(
    logits: np.ndarray, chain: dict[str, Any], recent: list[int], key: Callable[[int], dict[str, int]]
) -> Any:
    """Counts of DRAWS samples; key(i) gives the i-th draw's seed, position and choice."""
    counts = np.zeros(len(logits), np.int64)
    for i in range(DRAWS):
        keys = {"seed": 0, "position": 0, "choice": 0} | key(i)
        sampling = hy3core.Sampling(**{"temperature": 1.0} | chain | {"seed": keys["seed"]})
        counts[hy3core.sample(logits, sampling, recent, keys["position"], choice=keys["choice"])] += 1
    return counts


@pytest.mark.parametrize("name", CHAINS)
def test_chain(name: str, report: Callable[[str], None]) -> None:
    logits = make_logits(seed=1)
    recent = np.random.default_rng(2).integers(0, VOCAB, 100).tolist()
    counts = draw(logits, CHAINS[name], recent, key=lambda i: {"position": i})
    p = probabilities(logits, recent, **CHAINS[name])
    excess = chi_square_excess(counts, p)
    report(
        f"sampling {name}: {np.count_nonzero(p)} tokens, chi-square {excess:+.1f} deviations (limit {LIMIT})"
    )
    assert excess < LIMIT


@pytest.mark.parametrize("what", ["seed", "position", "choice"])
def test_each_part_of_the_key_draws_anew(what: str, report: Callable[[str], None]) -> None:
    """Consecutive seeds, positions or choices are independent draws: singles and neighbouring pairs."""
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    sequence = [
        hy3core.sample(
            logits,
            hy3core.Sampling(temperature=1.0, seed=i if what == "seed" else 9),
            [],
            i if what == "position" else 5,
            choice=i if what == "choice" else 0,
        )
        for i in range(DRAWS)
    ]
    p = probabilities(logits)
    singles = chi_square_excess(np.bincount(sequence, minlength=4), p)
    pairs = np.bincount(np.array(sequence[0::2]) * 4 + sequence[1::2], minlength=16)
    excess = max(singles, chi_square_excess(pairs, np.outer(p, p).ravel()))
    report(f"sampling over {what}s: chi-square {excess:+.1f} deviations (limit {LIMIT})")
    assert excess < LIMIT


def test_the_check_can_fail() -> None:
    """A temperature wrong by 5%, or top-p applied before top-k, is far outside the limit."""
    logits = make_logits(seed=1)
    counts = draw(logits, {}, [], key=lambda i: {"position": i})
    assert chi_square_excess(counts, probabilities(logits, temperature=1.05)) > LIMIT
    chain = CHAINS["top-k before top-p"]
    counts = draw(logits, chain, [], key=lambda i: {"position": i})
    wrong = probabilities(np.log(probabilities(logits, top_p=chain["top_p"]) + 1e-300), top_k=chain["top_k"])
    assert chi_square_excess(counts, wrong) > LIMIT
