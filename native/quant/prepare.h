// Internal to native/quant: what every writer does to a block before it searches for scales.
#pragma once

#include <bit>
#include <cstdint>

#include "quant/half.h"

namespace hy3 {

// A block scaled by a power of two (exactly) so that its largest magnitude lies in [1, 2): squares neither
// overflow nor vanish, whatever the weights' size. Subnormal blocks stay below 1.
template <int n>
struct Prepared {
    float x[n];  // src / unit
    float w[n];  // importance, largest 1; all 1 without importance
    float unit;  // a power of two
};

// Largest magnitude, by comparing bits: integers, because a float maximum would not vectorize.
inline float largest_magnitude(const float* x, int n) {
    int32_t top = 0;
    for (int i = 0; i < n; ++i) {
        const int32_t bits = std::bit_cast<int32_t>(x[i]) & 0x7fffffff;
        top = bits > top ? bits : top;
    }
    return std::bit_cast<float>(top);
}

// The power of two at or below a positive number, kept between 2^-126 and 2^126 so that its inverse is normal
// too.
inline float power_of_two_below(float v) {
    const uint32_t exponent = std::bit_cast<uint32_t>(v) >> 23;
    const uint32_t kept = exponent < 1 ? 1 : exponent > 253 ? 253 : exponent;
    return std::bit_cast<float>(kept << 23);
}

// False, and nothing filled in, when every element is zero.
template <int n>
bool prepare(const float* src, const float* importance, Prepared<n>& out) {
    const float top = largest_magnitude(src, n);
    if (top == 0.0f) return false;
    out.unit = power_of_two_below(top);
    const float inverse = 1.0f / out.unit;
    for (int i = 0; i < n; ++i) out.x[i] = src[i] * inverse;

    const float heaviest = importance == nullptr ? 0.0f : largest_magnitude(importance, n);
    if (heaviest == 0.0f) {
        for (int i = 0; i < n; ++i) out.w[i] = 1.0f;
    } else {
        // Not quite zero, so that elements without importance still get a sensible value.
        constexpr float kLeast = 1e-6f;
        for (int i = 0; i < n; ++i) {
            const float w = importance[i] / heaviest;
            out.w[i] = w < kLeast ? kLeast : w;
        }
    }
    return true;
}

// The float16 nearest to a scale, never infinite.
inline uint16_t f16_scale(float scale) {
    constexpr float kMax = 65504.0f;
    return f32_to_f16(scale > kMax ? kMax : scale < -kMax ? -kMax : scale);
}

// The smallest step of float16 is 2^-24, so a small scale may round to a much smaller number, or to zero.
// Rounds away from zero where the nearest float16 would leave the block's largest element out of reach: more
// than `slack` of it.
inline uint16_t f16_scale_reaching(float scale, float slack) {
    const uint16_t h = f16_scale(scale);
    const float stored = f16_to_f32(h);
    const float have = stored < 0 ? -stored : stored, want = scale < 0 ? -scale : scale;
    const bool short_of = have * (1.0f + slack) < want && (h & 0x7fffu) < 0x7bffu;
    return short_of ? static_cast<uint16_t>(h + 1) : h;
}

}  // namespace hy3
