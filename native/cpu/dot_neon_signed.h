// Tiles from dot4_lane().

#include "cpu/dot_neon_rows.h"

// As Dot4Tile, but a register of activations serves 16 columns, each of its lanes in turn all weight rows.
struct LaneTile : NeonRows {
    template <typename Words = Dot4Tile>
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        Words::interleave(rows, stride, words);
    }

    template <int columns, int, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        for (int c = 0; c < columns; c += 16, words += 256) {
            int8x16_t x[n];
            for (int i = 0; i < n; i++) x[i] = vld1q_s8(q[i] + column + c);
            add_word<0>(words, x, dots);
            add_word<1>(words, x, dots);
            add_word<2>(words, x, dots);
            add_word<3>(words, x, dots);
        }
    }

    template <int word, int n>
    HY3_INLINE void add_word(const uint8_t* words, const int8x16_t (&x)[n], I* dots) {
        for (int j = 0; j < 4; j++) {
            const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(words + 64 * word + 16 * j));
            for (int i = 0; i < n; i++) dots[i].q[j] = dot4_lane<word>(dots[i].q[j], w, x[i]);
        }
    }
};
