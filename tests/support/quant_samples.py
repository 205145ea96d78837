"""Blocks and rows for the tests of native/quant, and for the scripts that make their golden data.

Built on the raw output of PCG64, which NumPy promises never to change (its distributions it does not).
"""

from collections.abc import Callable

import numpy as np

# type: (id, elements, bytes, offsets of float16 fields). Offsets are those of the `gguf` package's layouts.
TYPES: dict[str, tuple[int, int, int, tuple[int, ...]]] = {
    "f32": (0, 1, 4, ()),
    "f16": (1, 1, 2, ()),
    "q4_0": (2, 32, 18, (0,)),
    "q4_1": (3, 32, 20, (0, 2)),
    "q5_0": (6, 32, 22, (0,)),
    "q5_1": (7, 32, 24, (0, 2)),
    "q8_0": (8, 32, 34, (0,)),
    "q2_k": (10, 256, 84, (80, 82)),
    "q3_k": (11, 256, 110, (108,)),
    "q4_k": (12, 256, 144, (0, 2)),
    "q5_k": (13, 256, 176, (0, 2)),
    "q6_k": (14, 256, 210, (208,)),
    "iq2_xxs": (16, 256, 66, (0,)),
    "iq2_xs": (17, 256, 74, (0,)),
    "iq3_xxs": (18, 256, 98, (0,)),
    "iq1_s": (19, 256, 50, (0,)),
    "iq4_nl": (20, 32, 18, (0,)),
    "iq3_s": (21, 256, 110, (0,)),
    "iq2_s": (22, 256, 82, (0,)),
    "iq4_xs": (23, 256, 136, (0,)),
    "iq1_m": (29, 256, 56, ()),  # its scale is spread over the top nibbles of four words
    "bf16": (30, 1, 2, ()),
    "mxfp4": (39, 32, 17, ()),  # its scale is a power of two in one byte
}
# What a quantizer has to choose for; f32, f16 and bf16 only round.
SEARCHED = ("q8_0", "q4_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4")

# float16 scales at the ends of the range: largest, smallest normal and subnormal, both zeros, ones.
EXTREME_SCALES = np.array(
    [0x7BFF, 0xFBFF, 0x0400, 0x8400, 0x0001, 0x83FF, 0x0000, 0x8000, 0x3C00], dtype=np.uint16
)


def uniform(seed: int, n: int) -> np.ndarray:
    """n float64 in (0, 1)."""
    return ((np.random.PCG64(seed).random_raw(n) >> np.uint64(12)).astype(np.float64) + 0.5) / 2.0**52


def normal(seed: int, n: int) -> np.ndarray:
    u = uniform(seed, 2 * n)
    return np.sqrt(-2 * np.log(u[:n])) * np.cos(2 * np.pi * u[n:])


def random_bytes(seed: int, n: int) -> np.ndarray:
    return np.random.PCG64(seed).random_raw(n // 8 + 1).view(np.uint8)[:n].copy()


def put_scales(type_name: str, blocks: np.ndarray, scales: np.ndarray) -> None:
    """Gives block i the float16 bits scales[i] as its scale and, shifted by one, as its minimum."""
    if type_name == "iq1_m":
        words = blocks[:, 48:56].view("<u2")
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | (
                (scales >> np.uint16(4 * i)) & np.uint16(15)
            ) << np.uint16(12)
    for k, offset in enumerate(TYPES[type_name][3]):
        blocks[:, offset : offset + 2] = np.roll(scales, k).view(np.uint8).reshape(-1, 2)


def sample_blocks(type_name: str, n: int, seed: int) -> np.ndarray:
    """uint8[blocks, bytes]: n random blocks with scales around 1e-2, then random, zero and all-ones codes
    under extreme scales. The float types are random bits: NaNs and infinities among them."""
    size = TYPES[type_name][2]
    random = random_bytes(seed, n * size).reshape(n, size)
    put_scales(type_name, random, (normal(seed + 1, n) * 0.01).astype(np.float16).view(np.uint16))
    parts = [random]
    for codes in (random_bytes(seed + 2, len(EXTREME_SCALES) * size), 0, 255):
        blocks = np.empty((len(EXTREME_SCALES), size), dtype=np.uint8)
        blocks[:] = np.reshape(codes, (-1, size)) if np.ndim(codes) else codes
        put_scales(type_name, blocks, EXTREME_SCALES)
        parts.append(blocks)
    return np.concatenate(parts)


def heavy_tailed(seed: int, n: int) -> np.ndarray:
    """Student's t with three degrees of freedom."""
    z = [normal(seed + k, n) for k in range(4)]
    return z[0] / np.sqrt((z[1] ** 2 + z[2] ** 2 + z[3] ** 2) / 3)


def sparse(seed: int, n: int) -> np.ndarray:
    return np.where(uniform(seed + 1, n) < 0.05, normal(seed, n) * 0.02, 0.0)


ROWS: dict[str, Callable[[int, int], np.ndarray]] = {
    "normal": lambda seed, n: normal(seed, n) * 0.02,
    "heavy": lambda seed, n: heavy_tailed(seed, n) * 0.02,
    "offset": lambda seed, n: normal(seed, n) * 0.02 - 0.04,
    "small": lambda seed, n: normal(seed, n) * 1e-4,  # the scales of most types are float16 subnormals
    "tiny": lambda seed, n: normal(seed, n) * 1e-6,  # below what most types can scale to
    "denormal": lambda seed, n: normal(seed, n) * 1e-40,  # float32 subnormals
    "sparse": sparse,
}


def sample_rows(kind: str, seed: int, rows: int = 8, cols: int = 1024) -> np.ndarray:
    return ROWS[kind](seed, rows * cols).reshape(rows, cols).astype(np.float32)


def sample_importance(seed: int, cols: int = 1024) -> np.ndarray:
    """Spread over about three orders of magnitude, as the mean squares of activations are."""
    return np.exp(1.5 * normal(seed, cols)).astype(np.float32)


def squared_error(rows: np.ndarray, got: np.ndarray, importance: np.ndarray | None) -> float:
    error = (rows.astype(np.float64) - got.reshape(rows.shape)) ** 2
    return float((error if importance is None else error * importance).sum())
