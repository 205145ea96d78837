// Writers of Q3_K and Q6_K: 16 groups of 16 elements, signed integer scales, no offsets.
#include <cstring>

#include "quant/kquants.h"
#include "quant/symmetric.h"

namespace hy3 {
namespace {

using Q3 = SymmetricBlock<IntegerLevels<-4, 3>, 16, 16, -32, 31>;
using Q6 = SymmetricBlock<IntegerLevels<-32, 31>, 16, 16, -128, 127>;

constexpr float kReach3[kLanes] = {0.55f, 0.70f, 0.80f, 0.88f, 0.96f, 1.03f, 1.10f, 1.20f};
constexpr float kReach6[kLanes] = {0.90f, 0.94f, 0.97f, 0.985f, 1.0f, 1.01f, 1.02f, 1.04f};

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

template <typename Fit, typename Block>
void write_row(const float* src, void* dst, int64_t n, const float* importance, const Lanes& reach,
               int rounds) {
    auto* blocks = static_cast<Block*>(dst);
    for (int64_t i = 0; i < n; i += kSuperBlock) {
        Prepared<kSuperBlock> block;
        Fit fit;
        if (prepare(src + i, importance == nullptr ? nullptr : importance + i, block))
            fit.fit(block, reach, rounds);
        pack(fit, blocks[i / kSuperBlock]);
    }
}

}  // namespace

void write_q3_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q3, BlockQ3_K>(src, dst, n, importance, load(kReach3), 3);
}

void write_q6_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q6, BlockQ6_K>(src, dst, n, importance, load(kReach6), 2);
}

}  // namespace hy3
