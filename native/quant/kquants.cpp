// The K family (Q2_K to Q6_K): readers, and the table of its codecs. Layouts: blocks.h; writers:
// kquants_affine.cpp and kquants_symmetric.cpp. Products are formed in the order of the `gguf` package's
// NumPy code, so that the floats are the same to the bit.
#include "quant/kquants.h"

#include "quant/blocks.h"
#include "quant/codec.h"
#include "quant/half.h"

namespace hy3 {
namespace {

void read_q2_k(const BlockQ2_K& b, float* dst) {
    const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int g = 0; g < 16; ++g) {
        const float scale = d * static_cast<float>(b.scales[g] & 15);
        const float offset = dmin * static_cast<float>(b.scales[g] >> 4);
        const uint8_t* qs = b.qs + 32 * (g >> 3) + 16 * (g & 1);
        const int shift = 2 * (g >> 1 & 3);
        for (int i = 0; i < 16; ++i)
            dst[16 * g + i] = scale * static_cast<float>(qs[i] >> shift & 3) - offset;
    }
}

void read_q3_k(const BlockQ3_K& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int g = 0; g < 16; ++g) {
        const float scale = d * static_cast<float>(q3_k_scale(b, g) - 32);
        const uint8_t* qs = b.qs + 32 * (g >> 3) + 16 * (g & 1);
        const uint8_t* high = b.hmask + 16 * (g & 1);
        const int shift = 2 * (g >> 1 & 3);
        for (int i = 0; i < 16; ++i) {
            const int q = (qs[i] >> shift & 3) + 4 * (high[i] >> (g >> 1) & 1) - 4;
            dst[16 * g + i] = scale * static_cast<float>(q);
        }
    }
}

void read_q4_k(const BlockQ4_K& b, float* dst) {
    const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int g = 0; g < 8; ++g) {
        const ScaleMin sm = k_scale_min(b.scales, g);
        const float scale = d * static_cast<float>(sm.scale), offset = dmin * static_cast<float>(sm.min);
        const uint8_t* qs = b.qs + 32 * (g >> 1);
        const int shift = 4 * (g & 1);
        for (int i = 0; i < 32; ++i)
            dst[32 * g + i] = scale * static_cast<float>(qs[i] >> shift & 15) - offset;
    }
}

void read_q5_k(const BlockQ5_K& b, float* dst) {
    const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
    for (int g = 0; g < 8; ++g) {
        const ScaleMin sm = k_scale_min(b.scales, g);
        const float scale = d * static_cast<float>(sm.scale), offset = dmin * static_cast<float>(sm.min);
        const uint8_t* qs = b.qs + 32 * (g >> 1);
        const int shift = 4 * (g & 1);
        for (int i = 0; i < 32; ++i) {
            const int q = (qs[i] >> shift & 15) | (b.qh[i] >> g & 1) << 4;
            dst[32 * g + i] = scale * static_cast<float>(q) - offset;
        }
    }
}

void read_q6_k(const BlockQ6_K& b, float* dst) {
    const float d = f16_to_f32(b.d);
    for (int g = 0; g < 16; ++g) {
        const float scale = d * static_cast<float>(b.scales[g]);
        const int half = g >> 3, j = g >> 1 & 3, k = 16 * (g & 1);
        const uint8_t* ql = b.ql + 64 * half + 32 * (j & 1) + k;
        const uint8_t* qh = b.qh + 32 * half + k;
        for (int i = 0; i < 16; ++i) {
            const int q = (ql[i] >> (4 * (j >> 1)) & 15) | (qh[i] >> (2 * j) & 3) << 4;
            dst[16 * g + i] = scale * static_cast<float>(q - 32);
        }
    }
}

template <typename Block, void (*read_block)(const Block&, float*)>
void read_blocks(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const Block*>(src);
    for (int64_t i = 0; i < blocks; ++i) read_block(b[i], dst + i * kSuperBlock);
}

}  // namespace

// The largest magnitude both signs can reach with the largest scale and (for the affine types) offset.
const Codec kKCodecs[5] = {
    {Type::Q2_K, read_blocks<BlockQ2_K, read_q2_k>, write_q2_k, kF16Max * 15},
    {Type::Q3_K, read_blocks<BlockQ3_K, read_q3_k>, write_q3_k, kF16Max * 32 * 3},
    {Type::Q4_K, read_blocks<BlockQ4_K, read_q4_k>, write_q4_k, kF16Max * 63},
    {Type::Q5_K, read_blocks<BlockQ5_K, read_q5_k>, write_q5_k, kF16Max * 63},
    {Type::Q6_K, read_blocks<BlockQ6_K, read_q6_k>, write_q6_k, kF16Max * 127 * 31},
};

}  // namespace hy3
