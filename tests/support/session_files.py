"""Saved sessions taken apart and put together again (native/core/session_file.h): any lie wanted, and
contexts that would take too long to compute.

    saved = Saved.parse(path.read_bytes(), hidden=64)
    saved.tokens.append(7)
    path.write_bytes(saved.sealed())
"""

import struct
from dataclasses import dataclass

from support.xxh64 import xxh64

# magic; version, KV type, layers, heads, head size, positions in a page, MTP, states; backend; fingerprint,
# bytes of a page, tokens, jumps, extra bytes
HEADER = struct.Struct("<8s8I16s5Q")
STATES, PAGE_BYTES, COUNTS = 8, -4, slice(-3, None)  # where in it
PAGE = 64  # positions


@dataclass
class Saved:
    """The parts of a file; how many there are goes into the header when they are put together."""

    header: list[int | bytes]
    jumps: list[tuple[int, int]]
    tokens: list[int]
    states: bytes
    extra: bytes
    pages: bytes
    hidden: int

    @classmethod
    def parse(cls, data: bytes, hidden: int) -> "Saved":
        header = list(HEADER.unpack_from(data))
        n_states, (n_tokens, n_jumps, n_extra) = header[STATES], header[COUNTS]
        at = HEADER.size

        def take(size: int) -> bytes:
            nonlocal at
            at += size
            return data[at - size : at]

        jumps = list(struct.iter_unpack("<QQ", take(16 * n_jumps)))
        tokens = [token for (token,) in struct.iter_unpack("<i", take(4 * n_tokens))]
        states, extra = take(4 * hidden * n_states), take(n_extra)
        return cls(header, jumps, tokens, states, extra, data[at:-8], hidden)

    def unsealed(self) -> bytes:
        """Without the checksum."""
        header = [*self.header]
        header[STATES] = len(self.states) // (4 * self.hidden)
        header[COUNTS] = len(self.tokens), len(self.jumps), len(self.extra)
        jumps = b"".join(struct.pack("<QQ", *jump) for jump in self.jumps)
        tokens = struct.pack(f"<{len(self.tokens)}i", *self.tokens)
        return HEADER.pack(*header) + jumps + tokens + self.states + self.extra + self.pages

    def sealed(self) -> bytes:
        return sealed(self.unsealed())

    def set_pages(self, n: int) -> None:
        """So many, which repeat those that are there."""
        size = n * int(self.header[PAGE_BYTES])
        self.pages = (self.pages * (size // len(self.pages) + 1))[:size]


def sealed(unsealed: bytes) -> bytes:
    return unsealed + struct.pack("<Q", xxh64(unsealed))
