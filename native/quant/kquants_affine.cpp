// Writers of Q2_K (16 groups of 16), Q4_K and Q5_K (8 groups of 32): integer scales and offsets. Search:
// affine.h.
#include "quant/affine.h"
#include "quant/kquants.h"

namespace hy3 {
namespace {

using Q2 = AffineBlock<4, 16, 16, 15>;
using Q4 = AffineBlock<16, 8, 32, 63>;
using Q5 = AffineBlock<32, 8, 32, 63>;

constexpr float kReach2[kLanes] = {0.70f, 0.82f, 0.92f, 1.00f, 1.08f, 1.18f, 1.32f, 1.55f};
constexpr float kReach4[kLanes] = {0.92f, 0.95f, 0.98f, 1.00f, 1.02f, 1.04f, 1.07f, 1.12f};
constexpr float kReach5[kLanes] = {0.96f, 0.975f, 0.99f, 1.00f, 1.01f, 1.02f, 1.035f, 1.05f};
constexpr float kFractions2[] = {1.0f, 0.93f, 1.07f};
constexpr float kFractions[] = {1.0f};

void pack(const Q2& fit, BlockQ2_K& b) {
    b = BlockQ2_K{};
    b.d = fit.d;
    b.dmin = fit.dmin;
    for (int g = 0; g < 16; ++g) b.scales[g] = static_cast<uint8_t>(fit.scale[g] | fit.offset[g] << 4);
    for (int i = 0; i < kSuperBlock; ++i) {
        uint8_t& byte = b.qs[32 * (i >> 7) + (i & 31)];
        byte = static_cast<uint8_t>(byte | static_cast<int>(fit.q[i]) << (2 * (i >> 5 & 3)));
    }
}

// The 12 bytes of 6-bit scales and offsets that Q4_K and Q5_K share; see blocks.h.
void pack_scales(const int* scale, const int* offset, uint8_t* bytes) {
    for (int g = 0; g < 4; ++g) {
        bytes[g] = static_cast<uint8_t>(scale[g] | scale[g + 4] >> 4 << 6);
        bytes[g + 4] = static_cast<uint8_t>(offset[g] | offset[g + 4] >> 4 << 6);
        bytes[g + 8] = static_cast<uint8_t>((scale[g + 4] & 15) | (offset[g + 4] & 15) << 4);
    }
}

void pack(const Q4& fit, BlockQ4_K& b) {
    b = BlockQ4_K{};
    b.d = fit.d;
    b.dmin = fit.dmin;
    pack_scales(fit.scale, fit.offset, b.scales);
    for (int j = 0; j < 4; ++j)
        for (int k = 0; k < 32; ++k)
            b.qs[32 * j + k] = static_cast<uint8_t>(static_cast<int>(fit.q[64 * j + k]) |
                                                    static_cast<int>(fit.q[64 * j + 32 + k]) << 4);
}

void pack(const Q5& fit, BlockQ5_K& b) {
    b = BlockQ5_K{};
    b.d = fit.d;
    b.dmin = fit.dmin;
    pack_scales(fit.scale, fit.offset, b.scales);
    for (int j = 0; j < 4; ++j) {
        for (int k = 0; k < 32; ++k) {
            const int even = static_cast<int>(fit.q[64 * j + k]),
                      odd = static_cast<int>(fit.q[64 * j + 32 + k]);
            b.qs[32 * j + k] = static_cast<uint8_t>((even & 15) | (odd & 15) << 4);
            b.qh[k] = static_cast<uint8_t>(b.qh[k] | even >> 4 << (2 * j) | odd >> 4 << (2 * j + 1));
        }
    }
}

template <typename Fit, typename Block, int n_fractions>
void write_row(const float* src, void* dst, int64_t n, const float* importance, const Lanes& reach,
               int rounds, const float (&fractions)[n_fractions]) {
    auto* blocks = static_cast<Block*>(dst);
    for (int64_t i = 0; i < n; i += kSuperBlock) {
        Prepared<kSuperBlock> block;
        Fit fit;
        if (prepare(src + i, importance == nullptr ? nullptr : importance + i, block))
            fit.fit(block, reach, rounds, fractions, n_fractions);
        pack(fit, blocks[i / kSuperBlock]);
    }
}

}  // namespace

void write_q2_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q2, BlockQ2_K>(src, dst, n, importance, load(kReach2), 3, kFractions2);
}

void write_q4_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q4, BlockQ4_K>(src, dst, n, importance, load(kReach4), 2, kFractions);
}

void write_q5_k(const float* src, void* dst, int64_t n, const float* importance) {
    write_row<Q5, BlockQ5_K>(src, dst, n, importance, load(kReach5), 2, kFractions);
}

}  // namespace hy3
