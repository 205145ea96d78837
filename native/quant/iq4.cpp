// IQ4_NL and IQ4_XS: four-bit codes into 16 unevenly spaced values. Readers and writers; layouts: blocks.h.
#include "quant/blocks.h"
#include "quant/codebooks.h"
#include "quant/codec.h"
#include "quant/half.h"
#include "quant/symmetric.h"

namespace hy3 {
namespace {

// Nearest value of the codebook by table: values lie at integers, so they change over at multiples of 1/2,
// and a quarter step resolves them.
struct NearestTable {
    static constexpr int kSteps = 4, kOffset = 128 * kSteps, kSize = 2 * kOffset;
    uint8_t code[kSize];
    float value[kSize];

    NearestTable() {
        for (int i = 0; i < kSize; ++i) {
            const float v = static_cast<float>(i - kOffset) / kSteps;
            int best = 0;
            for (int c = 1; c < 16; ++c)
                if (std::fabs(v - kvalues_iq4nl[c]) < std::fabs(v - kvalues_iq4nl[best])) best = c;
            code[i] = static_cast<uint8_t>(best);
            value[i] = kvalues_iq4nl[best];
        }
    }
    static int index(float v) { return static_cast<int>(v * kSteps + (kOffset + 0.5f)); }
};

const NearestTable kNearest;

struct Iq4Levels {
    static constexpr float lowest = -127.0f, highest = 113.0f;
    static Lanes nearest(const Lanes& v) {
        float in[kLanes], out[kLanes];
        store(in, min(max(v, Lanes(lowest)), Lanes(highest)));
        for (int i = 0; i < kLanes; ++i) out[i] = kNearest.value[NearestTable::index(in[i])];
        return load(out);
    }
    static uint8_t code(float v) {
        return kNearest.code[NearestTable::index(v < lowest ? lowest : v > highest ? highest : v)];
    }
};

constexpr Starts<16> kStarts = {
    {-101, -109, -115, -120, -125, -130, -134, -140, 90, 97, 103, 107, 112, 116, 120, 125}};

// 16 bytes of nibbles -> 32 values; low nibbles first.
void read_32(const uint8_t* qs, float scale, float* dst) {
    for (int i = 0; i < 16; ++i) {
        dst[i] = scale * static_cast<float>(kvalues_iq4nl[qs[i] & 15]);
        dst[i + 16] = scale * static_cast<float>(kvalues_iq4nl[qs[i] >> 4]);
    }
}

void write_32(const uint8_t* code, uint8_t* qs) {
    for (int i = 0; i < 16; ++i) qs[i] = static_cast<uint8_t>(code[i] | code[i + 16] << 4);
}

void read_iq4_nl(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const BlockIQ4_NL*>(src);
    for (int64_t i = 0; i < blocks; ++i) read_32(b[i].qs, f16_to_f32(b[i].d), dst + i * kSmallBlock);
}

void write_iq4_nl(const float* src, void* dst, int64_t n, const float* importance) {
    auto* b = static_cast<BlockIQ4_NL*>(dst);
    for (int64_t k = 0; k < n; k += kSmallBlock, ++b) {
        uint8_t code[kSmallBlock];
        b->d = fit_small_block<Iq4Levels>(src + k, importance == nullptr ? nullptr : importance + k, kStarts,
                                          code);
        write_32(code, b->qs);
    }
}

void read_iq4_xs(const void* src, float* dst, int64_t blocks) {
    const auto* b = static_cast<const BlockIQ4_XS*>(src);
    for (int64_t n = 0; n < blocks; ++n, ++b) {
        const float d = f16_to_f32(b->d);
        for (int g = 0; g < 8; ++g, dst += 32) {
            const int scale = (b->scales_l[g >> 1] >> (4 * (g & 1)) & 15) | (b->scales_h >> (2 * g) & 3) << 4;
            read_32(b->qs + 16 * g, d * static_cast<float>(scale - 32), dst);
        }
    }
}

void write_iq4_xs(const float* src, void* dst, int64_t n, const float* importance) {
    auto* b = static_cast<BlockIQ4_XS*>(dst);
    for (int64_t k = 0; k < n; k += kSuperBlock, ++b) {
        Prepared<kSuperBlock> block;
        SymmetricBlock<Iq4Levels, 8, 32, -32, 31> fit;
        if (prepare(src + k, importance == nullptr ? nullptr : importance + k, block))
            fit.fit(block, kStarts, 2);
        *b = BlockIQ4_XS{};
        b->d = fit.d;
        for (int g = 0; g < 8; ++g) {
            const int scale = fit.scale[g] + 32;
            b->scales_l[g >> 1] = static_cast<uint8_t>(b->scales_l[g >> 1] | (scale & 15) << (4 * (g & 1)));
            b->scales_h = static_cast<uint16_t>(b->scales_h | scale >> 4 << (2 * g));
            write_32(fit.code + 32 * g, b->qs + 16 * g);
        }
    }
}

}  // namespace

const Codec kIq4Codecs[2] = {
    {Type::IQ4_NL, read_iq4_nl, write_iq4_nl, kF16Max * 113},
    {Type::IQ4_XS, read_iq4_xs, write_iq4_xs, kF16Max * 31 * 113},
};

}  // namespace hy3
