// dot4() on NEON with dot products, and tiles with matrix products: smmla adds the four dot products of eight
// columns of two weight rows with those of two activation rows.

constexpr int kRowBlock = 4;
struct MatrixTile;
using Tile = MatrixTile;

HY3_INLINE int32x4_t dot4_quarter(int32x4_t sum, int8x16_t codes, int8x16_t s8) {
    return vdotq_s32(sum, codes, s8);
}

#include "cpu/dot_neon_rows.h"

// As generic/tile.h has it, with a panel as [column / 8][pair of rows][row][8].
struct MatrixTile : NeonRows {
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        for (int pair = 0; pair < kPanel / 2; pair++) {
            const uint8_t* row = rows + 2 * pair * stride;
            const I first = load_bytes(row), second = load_bytes(row + stride);
            for (int j = 0; j < 4; j++) {
                uint8_t* to = words + 256 * j + 16 * pair;
                store_quarter(to, low_halves(first.q[j], second.q[j]));
                store_quarter(to + 128, high_halves(first.q[j], second.q[j]));
            }
        }
    }

    template <int columns, int, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        constexpr int pairs =
            (n + 1) / 2;           // of activation rows; the last is paired with itself where n is odd
        int32x4_t sums[pairs][8];  // [pair of weight rows]: (w0 x0, w0 x1, w1 x0, w1 x1)
        for (auto& pair : sums)
            for (int32x4_t& sum : pair) sum = vdupq_n_s32(0);
        for (int unit = 0; unit < columns / 8; unit++) {
            int8x16_t x[pairs];
            for (int p = 0; p < pairs; p++)
                x[p] = vcombine_s8(vld1_s8(q[2 * p] + column + 8 * unit),
                                   vld1_s8(q[2 * p + 1 < n ? 2 * p + 1 : 2 * p] + column + 8 * unit));
            for (int r = 0; r < 8; r++) {
                const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(words + 128 * unit + 16 * r));
                for (int p = 0; p < pairs; p++) sums[p][r] = vmmlaq_s32(sums[p][r], w, x[p]);
            }
        }
        for (int i = 0; i < n; i++)
            dots[i] = iadd(dots[i], by_quarter<I>([&](int j) {
                               const int32x4_t a = sums[i / 2][2 * j], b = sums[i / 2][2 * j + 1];
                               return i % 2 == 0 ? vuzp1q_s32(a, b) : vuzp2q_s32(a, b);
                           }));
    }
};
