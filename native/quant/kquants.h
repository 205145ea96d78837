// Internal to native/quant: what the readers and writers of the K family share.
#pragma once

#include <cstdint>

#include "quant/blocks.h"

namespace hy3 {

struct ScaleMin {
    uint8_t scale;
    uint8_t min;
};

// The 6-bit scale and minimum of group g (0..7) of a Q4_K or Q5_K block; packing in blocks.h.
inline ScaleMin k_scale_min(const uint8_t* scales, int g) {
    if (g < 4) return {static_cast<uint8_t>(scales[g] & 63), static_cast<uint8_t>(scales[g + 4] & 63)};
    const int low = scales[g + 4];
    return {static_cast<uint8_t>((low & 15) | (scales[g - 4] >> 6) << 4),
            static_cast<uint8_t>(low >> 4 | (scales[g] >> 6) << 4)};
}

// The 6-bit scale, before subtracting 32, of group g (0..15) of a Q3_K block.
inline int q3_k_scale(const BlockQ3_K& b, int g) {
    return (b.scales[g & 7] >> (4 * (g >> 3)) & 15) | (b.scales[8 + (g & 3)] >> (2 * (g >> 2)) & 3) << 4;
}

// Row writers (see codec.h).
void write_q2_k(const float* src, void* dst, int64_t n, const float* importance);
void write_q3_k(const float* src, void* dst, int64_t n, const float* importance);
void write_q4_k(const float* src, void* dst, int64_t n, const float* importance);
void write_q5_k(const float* src, void* dst, int64_t n, const float* importance);
void write_q6_k(const float* src, void* dst, int64_t n, const float* importance);

}  // namespace hy3
