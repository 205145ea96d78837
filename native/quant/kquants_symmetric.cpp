// Writers of Q3_K and Q6_K: 16 groups of 16 elements, signed integer scales, no offsets.
#include <cstring>

#include "quant/kquants.h"
#include "quant/symmetric.h"

namespace hy3 {
namespace {

using Q3 = SymmetricBlock<IntegerLevels<-4, 3>, 16, 16, -32, 31>;
using Q6 = SymmetricBlock<IntegerLevels<-32, 31>, 16, 16, -128, 127>;

constexpr Starts<16> kStarts3 = {{-2.2f, -2.8f, -3.2f, -3.5f, -3.85f, -4.1f, -4.4f, -4.8f, 1.65f, 2.1f, 2.4f,
                                  2.65f, 2.9f, 3.1f, 3.3f, 3.6f}};
constexpr Starts<8> kStarts6 = {{-29.0f, -30.5f, -31.4f, -32.2f, -33.0f, 30.0f, 31.0f, 31.6f}};

// Bit positions of element i within a block, as in blocks.h.
void pack(const Q3& fit, BlockQ3_K& b) {
    b = BlockQ3_K{};
    b.d = fit.d;
    for (int g = 0; g < 16; ++g) {
        const int scale = fit.scale[g] + 32;
        b.scales[g & 7] = static_cast<uint8_t>(b.scales[g & 7] | (scale & 15) << (4 * (g >> 3)));
        b.scales[8 + (g & 3)] = static_cast<uint8_t>(b.scales[8 + (g & 3)] | scale >> 4 << (2 * (g >> 2)));
    }
    for (int i = 0; i < kSuperBlock; ++i) {
        const int code = fit.code[i], half = i >> 7, j = i >> 5 & 3, k = i & 31;
        b.qs[32 * half + k] = static_cast<uint8_t>(b.qs[32 * half + k] | (code & 3) << (2 * j));
        b.hmask[k] = static_cast<uint8_t>(b.hmask[k] | code >> 2 << (i >> 5));
    }
}

void pack(const Q6& fit, BlockQ6_K& b) {
    b = BlockQ6_K{};
    b.d = fit.d;
    for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<int8_t>(fit.scale[g]);
    for (int i = 0; i < kSuperBlock; ++i) {
        const int code = fit.code[i], half = i >> 7, j = i >> 5 & 3, k = i & 31;
        uint8_t& low = b.ql[64 * half + 32 * (j & 1) + k];
        uint8_t& high = b.qh[32 * half + k];
        low = static_cast<uint8_t>(low | (code & 15) << (4 * (j >> 1)));
        high = static_cast<uint8_t>(high | code >> 4 << (2 * j));
    }
}

template <typename Fit, typename Block, int n_starts>
void write_row(const float* src, void* dst, int64_t n, const float* importance,
               const Starts<n_starts>& starts, int rounds) {
    auto* blocks = static_cast<Block*>(dst);
    for (int64_t i = 0; i < n; i += kSuperBlock) {
        Prepared<kSuperBlock> block;
        Fit fit;
        if (prepare(src + i, importance == nullptr ? nullptr : importance + i, block))
            fit.fit(block, starts, rounds);
        pack(fit, blocks[i / kSuperBlock]);
    }
}

}  // namespace

void write_q3_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q3, BlockQ3_K>(src, dst, n, importance, kStarts3, 2);
}

void write_q6_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q6, BlockQ6_K>(src, dst, n, importance, kStarts6, 2);
}

}  // namespace hy3
