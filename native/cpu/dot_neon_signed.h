// dot4() from dot4_quarter(), and tiles from dot4_lane(), which multiply signed bytes.

#include "cpu/dot_neon_rows.h"

template <bool wide>
HY3_INLINE I dot4(I sum, I u8, I s8) {
    return by_quarter<I>([&](int j) {
        const int8x16_t u = vreinterpretq_s8_s32(u8.q[j]), s = vreinterpretq_s8_s32(s8.q[j]);
        if constexpr (!wide) return dot4_quarter(sum.q[j], u, s);
        // u = (u - 128) + 128: the first is u with its top bit flipped, as signed; the second - -128.
        const int8x16_t top = vdupq_n_s8(-128);
        return vsubq_s32(dot4_quarter(sum.q[j], veorq_s8(u, top), s), dot4_quarter(vdupq_n_s32(0), top, s));
    });
}

// As Dot4Tile, but a register of activations serves 16 columns, each of its lanes in turn all weight rows.
struct LaneTile : NeonRows {
    template <typename Words = Dot4Tile>
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        Words::interleave(rows, stride, words);
    }

    template <int columns, bool wide, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        static_assert(!wide, "weight codes are signed (kWideOffset)");
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
