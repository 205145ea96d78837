// MXFP4 (OCP microscaling): 32 four-bit floats (e2m1) under a shared power of two. Reader and writer; layout:
// blocks.h.
#include <cmath>

#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/prepare.h"

namespace hy3 {
namespace {

// Code of the nearest doubled value 0 1 2 3 4 6 8 12: the number of midpoints below it.
uint8_t nearest_code(float v) {
    const float m = std::fabs(v);
    const int code =
        (m > 0.5f) + (m > 1.5f) + (m > 2.5f) + (m > 3.5f) + (m > 5.0f) + (m > 7.0f) + (m > 10.0f);
    return static_cast<uint8_t>(v < 0.0f ? code + 8 : code);
}

float encode(const Prepared<kSmallBlock>& block, int exponent, uint8_t* code) {
    const float d = e8m0_half_to_f32(static_cast<uint8_t>(exponent)) / block.unit;
    float error = 0.0f;
    for (int i = 0; i < kSmallBlock; ++i) {
        code[i] = nearest_code(block.x[i] / d);
        const float miss = block.x[i] - d * static_cast<float>(kvalues_mxfp4[code[i]]);
        error += block.w[i] * miss * miss;
    }
    return error;
}

void read_mxfp4(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const BlockMXFP4*>(src);
    for (int64_t n = 0; n < blocks; ++n, ++b, dst += kSmallBlock) {
        const float d = e8m0_half_to_f32(b->e);
        for (int i = 0; i < 16; ++i) {
            dst[i] = d * static_cast<float>(kvalues_mxfp4[b->qs[i] & 15]);
            dst[i + 16] = d * static_cast<float>(kvalues_mxfp4[b->qs[i] >> 4]);
        }
    }
}

// The standard's exponent puts the largest element in [4, 8) where 6 is the largest value; the next one up
// avoids clipping it, the next one down serves the small elements better when the large have no importance.
void write_mxfp4(const float* src, void* dst, int64_t n, const float* importance) {
    auto* b = static_cast<BlockMXFP4*>(dst);
    for (int64_t k = 0; k < n; k += kSmallBlock, ++b) {
        *b = BlockMXFP4{};
        Prepared<kSmallBlock> block;
        if (!prepare(src + k, importance == nullptr ? nullptr : importance + k, block)) continue;
        const int standard = static_cast<int>(std::bit_cast<uint32_t>(block.unit) >> 23) - 2;
        float best_error = INFINITY;
        for (int e = standard - 1; e <= standard + 1; ++e) {
            if (e < 0 || e > 252) continue;
            uint8_t code[kSmallBlock];
            const float error = encode(block, e, code);
            if (!(error < best_error)) continue;
            best_error = error;
            b->e = static_cast<uint8_t>(e);
            for (int i = 0; i < 16; ++i) b->qs[i] = static_cast<uint8_t>(code[i] | code[i + 16] << 4);
        }
    }
}

}  // namespace

const Codec kMxfp4Codecs[1] = {{Type::MXFP4, read_mxfp4, write_mxfp4, 0x1.fffffep+127f}};

}  // namespace hy3
