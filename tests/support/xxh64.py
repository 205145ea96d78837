"""XXH64, seed 0, after its specification: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md"""

import struct

P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
MASK = (1 << 64) - 1


def rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def lane_round(lane: int, word: int) -> int:
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes) -> int:
    whole = len(data) // 32 * 32
    if whole:
        lanes = [(P1 + P2) & MASK, P2, 0, -P1 & MASK]
        words = struct.unpack(f"<{whole // 8}Q", data[:whole])
        for at in range(0, len(words), 4):
            lanes = [lane_round(lane, word) for lane, word in zip(lanes, words[at : at + 4], strict=True)]
        total = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            total = ((total ^ lane_round(0, lane)) * P1 + P4) & MASK
    else:
        total = P5
    total = (total + len(data)) & MASK
    rest = data[whole:]
    while len(rest) >= 8:
        total = (rotate(total ^ lane_round(0, struct.unpack("<Q", rest[:8])[0]), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        total = (rotate(total ^ struct.unpack("<I", rest[:4])[0] * P1 & MASK, 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        total = rotate(total ^ byte * P5 & MASK, 11) * P1 & MASK
    total = (total ^ total >> 33) * P2 & MASK
    total = (total ^ total >> 29) * P3 & MASK
    return total ^ total >> 32
