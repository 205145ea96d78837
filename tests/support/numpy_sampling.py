"""What the sampler should draw from, in NumPy: the chain of the public interface written out with a full
sort.

Repetition penalty (each distinct token of the last 64 once), temperature, top-k, top-p, min-p, each on what
the one before it left, renormalized. Candidates are ranked by logit, equal ones by lower id.
"""

from collections.abc import Sequence

import numpy as np

WINDOW = 64


def penalized(logits: np.ndarray, recent: Sequence[int], penalty: float) -> np.ndarray:
    logits = logits.astype(np.float64)
    for token in set(recent[-WINDOW:]):
        logits[token] = logits[token] / penalty if logits[token] > 0 else logits[token] * penalty
    return logits


def probabilities(
    logits: np.ndarray,
    recent: Sequence[int] = (),
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repeat_penalty: float = 1.0,
) -> np.ndarray:
    """float64[vocab]: zero for tokens that were cut off."""
    logits = penalized(logits, recent, repeat_penalty)
    if temperature == 0:
        return np.eye(len(logits))[np.argmax(logits)]
    p = np.exp((logits - logits.max()) / temperature)
    order = np.argsort(-logits, kind="stable")
    if top_k:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1:
        before = (
            np.cumsum(p[order]) - p[order]
        )  # a candidate stays if those ahead of it do not reach top_p yet
        p[order[before >= top_p]] = 0
        p /= p.sum()
    p[p < min_p * p.max()] = 0
    return p / p.sum()


def chi_square_excess(counts: np.ndarray, p: np.ndarray) -> float:
    """How far the counts of a fair sample are from p, in standard deviations (Wilson-Hilferty approximation).

    Cells that expect fewer than 5 are taken together. A count where p is zero is infinitely far.
    """
    if counts[p == 0].any():
        return float("inf")
    n = counts.sum()
    rare = p * n < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(p[~rare] * n, p[rare].sum() * n)
    observed, expected = observed[expected > 0], expected[expected > 0]
    freedom = len(expected) - 1
    if freedom == 0:
        return 0.0
    chi2 = float(((observed - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return ((chi2 / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5
