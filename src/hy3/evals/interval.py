"""How sure a share is."""

from math import sqrt


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95% interval of a share (Wilson 1927), which stays inside [0, 1] at the ends."""
    if count == 0:
        return 0.0, 1.0
    share = right / count
    centre = share + z * z / (2 * count)
    spread = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)
