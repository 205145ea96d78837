// dot4() on NEON with dot products of signed bytes.

constexpr int kRowBlock = 4;
struct Dot4Tile;
struct LaneTile;
using Tile = LaneTile;

HY3_INLINE int32x4_t dot4_quarter(int32x4_t sum, int8x16_t codes, int8x16_t s8) {
    return vdotq_s32(sum, codes, s8);
}
// With one word of s8 for all lanes.
template <int word>
HY3_INLINE int32x4_t dot4_lane(int32x4_t sum, int8x16_t codes, int8x16_t s8) {
    return vdotq_laneq_s32(sum, codes, s8, word);
}

#include "cpu/dot_neon_signed.h"
