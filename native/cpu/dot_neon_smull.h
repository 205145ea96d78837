// dot4() on NEON without dot products.

constexpr int kRowBlock = 2;
struct Dot4Tile;
struct LaneTile;
using Tile = LaneTile;

// Signed times -127..127: two products fit 16 bits even where a code is -128.
HY3_INLINE int32x4_t dot4_quarter(int32x4_t sum, int8x16_t codes, int8x16_t s8) {
    const int16x8_t low = vmull_s8(vget_low_s8(codes), vget_low_s8(s8)), high = vmull_high_s8(codes, s8);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
}
// With one word of s8 for all lanes.
template <int word>
HY3_INLINE int32x4_t dot4_lane(int32x4_t sum, int8x16_t codes, int8x16_t s8) {
    const int32x4_t words = vreinterpretq_s32_s8(s8);
    return dot4_quarter(sum, codes, vreinterpretq_s8_s32(vdupq_laneq_s32(words, word)));
}

#include "cpu/dot_neon_signed.h"
