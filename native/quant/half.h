// Conversions between float32 and the 16-bit floats and power-of-two scales that blocks store.
// Integer arithmetic on the bits, so that the result is the same on every machine; rounding is to nearest
// even, a NaN stays a NaN, overflow becomes infinity. Branch-free on the common path: the compiler can
// vectorize loops.
#pragma once

#include <bit>
#include <cstdint>

namespace hy3 {

// float16 bits -> float32, exact.
inline float f16_to_f32(uint16_t h) {
    const uint32_t magnitude = h & 0x7fffu;
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
    // Subnormals (below 2^-14) go through an integer conversion rather than a multiplication of a float32
    // subnormal, which would be slow and wrong under flush-to-zero. Scales of small weights often are float16
    // subnormals.
    const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
    const uint32_t rebias = 112u << 23;  // 127 - 15
    const uint32_t normal = (magnitude << 13) + rebias + (magnitude >= 0x7c00u ? rebias : 0u);
    return std::bit_cast<float>(sign | (magnitude < 0x0400u ? std::bit_cast<uint32_t>(small) : normal));
}

// float32 -> float16 bits, to nearest even.
inline uint16_t f32_to_f16(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    // Below 2^-14 the unit is 2^-24, which is the ulp of numbers in [0.5, 1): adding 0.5 rounds to it.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    // Otherwise drop 13 bits of mantissa; a carry runs into the exponent as it should.
    const uint32_t normal = (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    const uint32_t nan = 0x7e00u | ((magnitude >> 13) & 0x03ffu);
    uint32_t h = magnitude < 0x38800000u ? small : normal;
    h = magnitude >= 0x477ff000u ? 0x7c00u : h;  // 65520 and above: infinity
    h = magnitude > 0x7f800000u ? nan : h;
    return static_cast<uint16_t>(sign | h);
}

// bfloat16 bits -> float32, exact.
inline float bf16_to_f32(uint16_t h) {
    return std::bit_cast<float>(static_cast<uint32_t>(h) << 16);
}

// float32 -> bfloat16 bits, to nearest even.
inline uint16_t f32_to_bf16(float f) {
    const uint32_t bits = std::bit_cast<uint32_t>(f);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint32_t nan =
        (bits >> 16) | 0x40u;  // quiet, so that dropping the low bits cannot make it infinity
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// Half of e8m0, the shared exponent of the OCP microscaling formats: 2^(e - 127) / 2. Half, because MXFP4's
// table (kvalues_mxfp4) holds doubled values. 255, NaN in that standard, is read as 2^127, as `gguf` does.
inline float e8m0_half_to_f32(uint8_t e) {
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23);
}

}  // namespace hy3
