"""Random weights in every tensor type: quantized where hy3core can write the type, else raw blocks of random
codes, which eval/synth.py fills whole files with.

A random block's codes, signs and sub-scales are random bytes; its float scales are drawn near 1, and the
whole tensor is then brought to a wanted standard deviation by scaling them. Offsets are those of the `gguf`
package's layouts.
"""

from math import prod

import numpy as np
from support.random_hy3 import Encode, in_type

import hy3core

# type: (elements, bytes, offset of the float16 scale, offset of the float16 minimum or None, minimum / scale)
# The last column makes the values about zero-mean: the mean code (times, for the K types, the equal sub-
# scales).
BLOCKS: dict[str, tuple[int, int, int, int | None, float]] = {
    "q4_0": (32, 18, 0, None, 0.0),
    "q4_1": (32, 20, 0, 2, -7.5),
    "q5_0": (32, 22, 0, None, 0.0),
    "q5_1": (32, 24, 0, 2, -15.5),
    "q8_0": (32, 34, 0, None, 0.0),
    "q2_k": (256, 84, 80, 82, 1.5),
    "q3_k": (256, 110, 108, None, 0.0),
    "q4_k": (256, 144, 0, 2, 7.5),
    "q5_k": (256, 176, 0, 2, 15.5),
    "q6_k": (256, 210, 208, None, 0.0),
    "iq1_s": (256, 50, 0, None, 0.0),
    "iq1_m": (256, 56, -1, None, 0.0),  # the scale is spread over the top nibbles of four words
    "iq2_xxs": (256, 66, 0, None, 0.0),
    "iq2_xs": (256, 74, 0, None, 0.0),
    "iq2_s": (256, 82, 0, None, 0.0),
    "iq3_xxs": (256, 98, 0, None, 0.0),
    "iq3_s": (256, 110, 0, None, 0.0),
    "iq4_nl": (32, 18, 0, None, 0.0),
    "iq4_xs": (256, 136, 0, None, 0.0),
    "mxfp4": (32, 17, -1, None, 0.0),  # the scale is a power of two in one byte
}
FLOATS = ("f32", "f16", "bf16")
WRITTEN = {
    "q4_0",
    "q8_0",
    "q2_k",
    "q3_k",
    "q4_k",
    "q5_k",
    "q6_k",
    "iq4_nl",
    "iq4_xs",
    "mxfp4",
    *FLOATS,
}


def in_blocks(type_name: str) -> Encode:
    """Every matrix in the type, the router apart."""
    rng = np.random.default_rng(0)
    plain = in_type("f32")

    def encode(name: str, array: np.ndarray) -> tuple[str, bytes]:
        if array.ndim == 1 or "ffn_gate_inp" in name:
            return plain(name, array)
        if type_name in WRITTEN:
            return type_name, hy3core.quantize(array.reshape(-1, array.shape[-1]), type_name)
        return type_name, random_blocks(type_name, array.shape, float(array.std()), rng)

    return encode


def random_blocks(type_name: str, shape: tuple[int, ...], std: float, rng: np.random.Generator) -> bytes:
    if type_name in FLOATS:
        values = rng.standard_normal((prod(shape[:-1]), shape[-1]), np.float32) * np.float32(std)
        return hy3core.quantize(values, type_name)
    elements, size, scale_at, min_at, ratio = BLOCKS[type_name]
    n = prod(shape)
    assert shape[-1] % elements == 0
    raw = rng.integers(0, 256, (n // elements, size), dtype=np.uint8)
    jitter = rng.uniform(0.5, 1.5, len(raw))

    def put_scales(factor: float) -> None:
        scale = (jitter * factor).astype(np.float16)
        if type_name == "mxfp4":
            raw[:, 0] = np.clip(127 + np.round(np.log2(jitter * factor)), 1, 254)
        elif type_name == "iq1_m":
            words = raw[:, 48:56].view("<u2")
            for i in range(4):
                nibble = (scale.view(np.uint16) >> (4 * i)) & 15
                words[:, i] = (words[:, i] & 0x0FFF) | (nibble << 12)
        else:
            raw[:, scale_at : scale_at + 2] = scale.view(np.uint8).reshape(-1, 2)
        if min_at is not None:
            raw[:, min_at : min_at + 2] = (scale * np.float16(ratio)).view(np.uint8).reshape(-1, 2)

    put_scales(1.0)
    sample = raw[:64]
    measured = float(np.std(hy3core.dequantize(sample.tobytes(), type_name, sample.shape[0] * elements)))
    put_scales(std / measured)
    return raw.tobytes()
