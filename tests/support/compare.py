"""How far one set of logits is from another. All take [n, vocab] arrays (or [vocab])."""

import numpy as np
from support.numpy_hy3 import log_softmax

Array = np.ndarray


def relative_error(got: Array, expected: Array) -> float:
    """Largest difference as a part of the largest expected magnitude; infinite where either is not finite."""
    if not (np.isfinite(got).all() and np.isfinite(expected).all()) or got.shape != expected.shape:
        return float("inf")
    difference = np.abs(got.astype(np.float64) - expected).max()
    return float(difference / np.abs(expected).max())


def mean_kl(got: Array, expected: Array) -> float:
    """Mean over positions of KL(expected || got), in nats."""
    p, q = log_softmax(expected.astype(np.float64)), log_softmax(got.astype(np.float64))
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())


def same_bytes(a: Array, b: Array) -> bool:
    """Equal as float32 bytes: stricter than ==, which takes -0.0 for 0.0 and no NaN for itself."""
    return a.dtype == b.dtype == np.float32 and a.shape == b.shape and a.tobytes() == b.tobytes()
