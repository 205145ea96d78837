"""Sound or nearly sound files whose tables are as large as a file of their size can make them."""

import struct
from collections.abc import Callable

from support.gguf_files import build_gguf

MIB = 2**20


def smallest_tensors(count: int, alignment: int) -> bytes:
    """Names of one to three bytes, one element each: the least file per entry of the tensor table."""
    letters = [chr(c) for c in range(33, 127)]
    names = (
        letters
        + [a + b for a in letters for b in letters]
        + [a + b + c for a in letters for b in letters for c in letters]
    )
    return bytes(build_gguf({}, ((n, (1,), "i8", b"x") for n in names[:count]), alignment=alignment).data)


def claims(n_tensors: int, n_keys: int, size: int) -> bytes:
    """Counts that the size would just allow, before nothing but zeros."""
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + bytes(size)


def strings(count: int, key: str) -> bytes:
    """An array of empty strings: 8 bytes each in the file."""
    raw = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IIQ", 9, 8, count) + bytes(8 * count)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw


def arrays(count: int) -> bytes:
    """An array of empty arrays: 12 bytes each."""
    raw = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 9, count) + bytes(12 * count)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + raw


EXTREMES: dict[str, Callable[[], bytes]] = {
    "80,000 smallest tensors": lambda: smallest_tensors(80_000, 8),
    "80,000 tensors aligned to 32": lambda: smallest_tensors(80_000, 32),
    "4,096 smallest keys": lambda: bytes(build_gguf((f"{i:x}", True) for i in range(4096)).data),
    "claims of tensors": lambda: claims(80_000, 0, 33 * 80_000 + 100),
    "claims of keys": lambda: claims(0, 4096, 14 * 4096 + 100),
    "claims of both": lambda: claims(79_999, 4095, 4 * MIB),
    "a million empty strings": lambda: strings(MIB, "x"),
    "a million empty arrays": lambda: arrays(MIB),
}
