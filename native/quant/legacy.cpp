// The formats of 32 elements and one float16 scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, and the original engine's
// Q8_0. Readers of all; writers of Q4_0 and Q8_0. Layouts: blocks.h.
#include <cmath>

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/symmetric.h"

namespace hy3 {
namespace {

// A reader for blocks of nibbles qs[16] and, for the five-bit types, a 32-bit word of upper bits: value(d, m,
// q).
template <typename Block, typename Value>
void read_nibbles(const void* src, float* dst, int64_t blocks, Value value) {
    const auto* b = static_cast<const Block*>(src);
    for (int64_t n = 0; n < blocks; ++n, ++b, dst += kSmallBlock) {
        uint32_t high = 0;
        if constexpr (requires { b->qh; }) std::memcpy(&high, b->qh, sizeof high);
        for (int i = 0; i < 16; ++i) {
            dst[i] = value(*b, (b->qs[i] & 15) | static_cast<int>(high >> i & 1u) << 4);
            dst[i + 16] = value(*b, b->qs[i] >> 4 | static_cast<int>(high >> (i + 16) & 1u) << 4);
        }
    }
}

template <typename Block, int kZero>
void read_centred(const void* src, float* dst, int64_t blocks) {
    read_nibbles<Block>(src, dst, blocks, [](const Block& b, int q) {
        return f16_to_f32(b.d) * static_cast<float>(q - kZero);
    });
}

template <typename Block>
void read_offset(const void* src, float* dst, int64_t blocks) {
    read_nibbles<Block>(src, dst, blocks, [](const Block& b, int q) {
        return f16_to_f32(b.d) * static_cast<float>(q) + f16_to_f32(b.m);
    });
}

float scale_of(const BlockQ8_0& b) {
    return f16_to_f32(b.d);
}
float scale_of(const BlockQ8_0_HY3& b) {
    return b.d;
}

template <typename Block>
void read_bytes(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const Block*>(src);
    for (int64_t n = 0; n < blocks; ++n, ++b, dst += kSmallBlock) {
        const float d = scale_of(*b);
        for (int i = 0; i < kSmallBlock; ++i) dst[i] = d * static_cast<float>(b->qs[i]);
    }
}

// 255 steps leave little to search for: the largest magnitude goes to +-127. Importance changes nothing.
void write_q8_0(const float* src, void* dst, int64_t n, const float*) {
    auto* b = static_cast<BlockQ8_0*>(dst);
    for (int64_t k = 0; k < n; k += kSmallBlock, ++b) {
        const float* x = src + k;
        b->d = f16_scale_reaching(largest_magnitude(x, kSmallBlock) / 127.0f, 0.5f / 127.0f);
        const float d = f16_to_f32(b->d);
        const float inverse = d == 0.0f ? 0.0f : 1.0f / d;  // of the scale as stored
        int32_t q[kSmallBlock];
        for (int i = 0; i < kSmallBlock; ++i) {
            const float v = x[i] * inverse;
            q[i] = static_cast<int32_t>(round(v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v));
        }
        for (int i = 0; i < kSmallBlock; ++i) b->qs[i] = static_cast<int8_t>(q[i]);
    }
}

void write_q4_0(const float* src, void* dst, int64_t n, const float* importance) {
    using Levels = IntegerLevels<-8, 7>;
    constexpr Starts<16> kStarts = {{-6.4f, -6.9f, -7.3f, -7.6f, -7.9f, -8.2f, -8.5f, -8.8f, 5.6f, 6.0f, 6.4f,
                                     6.7f, 6.9f, 7.2f, 7.4f, 7.7f}};
    auto* b = static_cast<BlockQ4_0*>(dst);
    for (int64_t k = 0; k < n; k += kSmallBlock, ++b) {
        uint8_t code[kSmallBlock];
        b->d =
            fit_small_block<Levels>(src + k, importance == nullptr ? nullptr : importance + k, kStarts, code);
        for (int i = 0; i < 16; ++i) b->qs[i] = static_cast<uint8_t>(code[i] | code[i + 16] << 4);
    }
}

}  // namespace

const Codec kLegacyCodecs[6] = {
    {Type::Q4_0, read_centred<BlockQ4_0, 8>, write_q4_0, kF16Max * 7},
    {Type::Q4_1, read_offset<BlockQ4_1>, nullptr, 0},
    {Type::Q5_0, read_centred<BlockQ5_0, 16>, nullptr, 0},
    {Type::Q5_1, read_offset<BlockQ5_1>, nullptr, 0},
    {Type::Q8_0, read_bytes<BlockQ8_0>, write_q8_0, kF16Max * 127},
    {Type::Q8_0_HY3, read_bytes<BlockQ8_0_HY3>, nullptr, 0},
};

}  // namespace hy3
