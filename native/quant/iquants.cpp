// The codebook formats of 1 to 3 bits (IQ1, IQ2, IQ3), read only. Layouts: blocks.h.
// Each reader multiplies in the order of the `gguf` package's NumPy code, so that the floats are the same to
// the bit.
#include <cstring>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/codec.h"
#include "quant/half.h"

namespace hy3 {
namespace {

uint32_t load_u32(const void* p) {
    uint32_t v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// n magnitudes times scale, negated where the sign bit is set.
template <int n>
void signed_values(const uint8_t* magnitudes, uint32_t sign_bits, float scale, float* dst) {
    for (int i = 0; i < n; ++i) {
        const float value = scale * static_cast<float>(magnitudes[i]);
        dst[i] = (sign_bits >> i & 1u) != 0 ? -value : value;
    }
}

// Eight ternary values shifted by delta.
void shifted_values(const int8_t* grid, float delta, float scale, float* dst) {
    for (int i = 0; i < 8; ++i) dst[i] = scale * (static_cast<float>(grid[i]) + delta);
}

uint32_t nibble(const uint8_t* bytes, int i) {
    return bytes[i >> 1] >> (4 * (i & 1)) & 15u;
}

float scale_of(float d, uint32_t s, float factor) {
    return d * (0.5f + static_cast<float>(s)) * factor;
}

void read_iq2_xxs(const BlockIQ2_XXS& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int g = 0; g < 8; ++g) {
        const uint32_t codes = load_u32(&b.qs[0] + 4 * g);
        const uint32_t rest = load_u32(&b.qs[0] + 4 * g + 2);
        const float scale = scale_of(d, rest >> 28, 0.25f);
        for (int j = 0; j < 4; ++j, dst += 8)
            signed_values<8>(iq2xxs_grid[codes >> (8 * j) & 255u], ksigns[rest >> (7 * j) & 127u], scale,
                             dst);
    }
}

void read_iq2_xs(const BlockIQ2_XS& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int c = 0; c < 32; ++c, dst += 8) {
        const float scale = scale_of(d, nibble(b.scales, c >> 1), 0.25f);
        signed_values<8>(iq2xs_grid[b.qs[c] & 511u], ksigns[b.qs[c] >> 9], scale, dst);
    }
}

void read_iq2_s(const BlockIQ2_S& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int c = 0; c < 32; ++c, dst += 8) {
        const float scale = scale_of(d, nibble(b.scales, c >> 1), 0.25f);
        const uint32_t high = b.qh[c >> 2] >> (2 * (c & 3)) & 3u;
        signed_values<8>(iq2s_grid[b.qs[c] | high << 8], b.signs[c], scale, dst);
    }
}

void read_iq3_xxs(const BlockIQ3_XXS& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int g = 0; g < 8; ++g) {
        const uint32_t rest = load_u32(b.gas + 4 * g);
        const float scale = scale_of(d, rest >> 28, 0.5f);
        for (int j = 0; j < 4; ++j, dst += 8) {
            const uint32_t signs = ksigns[rest >> (7 * j) & 127u];
            signed_values<4>(iq3xxs_grid[b.qs[8 * g + 2 * j]], signs, scale, dst);
            signed_values<4>(iq3xxs_grid[b.qs[8 * g + 2 * j + 1]], signs >> 4, scale, dst + 4);
        }
    }
}

void read_iq3_s(const BlockIQ3_S& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int c = 0; c < 64; ++c, dst += 4) {
        const float scale = d * static_cast<float>(1 + 2 * nibble(b.scales, c >> 3));
        const uint32_t high = b.qh[c >> 3] >> (c & 7) & 1u;
        signed_values<4>(iq3s_grid[b.qs[c] | high << 8], b.signs[c >> 1] >> (4 * (c & 1)) & 15u, scale, dst);
    }
}

void read_iq1_s(const BlockIQ1_S& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int g = 0; g < 8; ++g) {
        const uint32_t qh = b.qh[g];
        const float scale = d * static_cast<float>(2 * (qh >> 12 & 7u) + 1);
        const float delta = (qh & 0x8000u) != 0 ? -0.125f : 0.125f;
        for (int j = 0; j < 4; ++j, dst += 8)
            shifted_values(iq1s_grid[b.qs[4 * g + j] | (qh >> (3 * j) & 7u) << 8], delta, scale, dst);
    }
}

void read_iq1_m(const BlockIQ1_M& b, float* dst) {
    uint16_t words[4];
    std::memcpy(words, b.scales, sizeof words);
    const uint32_t bits = static_cast<uint32_t>(words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 |
                                                words[3] >> 12 << 12);
    const float d = f16_to_f32(static_cast<uint16_t>(bits));
    for (int c = 0; c < 32; ++c, dst += 8) {
        const int group = c >> 1;  // of 16 elements
        const float scale = d * static_cast<float>(2 * (words[group >> 2] >> (3 * (group & 3)) & 7) + 1);
        const uint32_t high = b.qh[c >> 1] >> (4 * (c & 1)) & 15u;
        const float delta = (high & 8u) != 0 ? -0.125f : 0.125f;
        shifted_values(iq1s_grid[b.qs[c] | (high & 7u) << 8], delta, scale, dst);
    }
}

template <typename Block, void (*read_block)(const Block&, float*)>
void read_blocks(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const Block*>(src);
    for (int64_t i = 0; i < blocks; ++i) read_block(b[i], dst + i * kSuperBlock);
}

}  // namespace

const Codec kIqCodecs[7] = {
    {Type::IQ1_S, read_blocks<BlockIQ1_S, read_iq1_s>, nullptr, 0},
    {Type::IQ1_M, read_blocks<BlockIQ1_M, read_iq1_m>, nullptr, 0},
    {Type::IQ2_XXS, read_blocks<BlockIQ2_XXS, read_iq2_xxs>, nullptr, 0},
    {Type::IQ2_XS, read_blocks<BlockIQ2_XS, read_iq2_xs>, nullptr, 0},
    {Type::IQ2_S, read_blocks<BlockIQ2_S, read_iq2_s>, nullptr, 0},
    {Type::IQ3_XXS, read_blocks<BlockIQ3_XXS, read_iq3_xxs>, nullptr, 0},
    {Type::IQ3_S, read_blocks<BlockIQ3_S, read_iq3_s>, nullptr, 0},
};

}  // namespace hy3
