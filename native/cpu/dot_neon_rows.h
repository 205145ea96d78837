// dot4() from dot4_quarter(), which multiplies signed bytes, and what the tiles of all NEON tables have in
// common.

template <int code_bits>
HY3_INLINE I dot4(I sum, I codes, I s8) {
    return by_quarter<I>([&](int j) {
        return dot4_quarter(sum.q[j], vreinterpretq_s8_s32(codes.q[j]), vreinterpretq_s8_s32(s8.q[j]));
    });
}

struct NeonRows {
    // See generic/tile.h. Dot products add the columns of a group, and pairwise additions bring the rows to
    // their lanes.
    template <int group, int, int n, typename Codes>
    HY3_INLINE void dot_rows(const Codes& codes, const int8_t* const* q, I (*out)[64 / group]) {
        for (int j = 0; j < 4; j++) {
            int32x4_t dots[n][64 / group][4];
            for (int r = 0; r < 4; r++) {
                const I row = codes(4 * j + r);
                for (int i = 0; i < n; i++)
                    for (int part = 0; part < 64 / group; part++)
                        dots[i][part][r] = dot_columns<group>(row, q[i], part);
            }
            for (int i = 0; i < n; i++)
                for (int part = 0; part < 64 / group; part++) {
                    const auto& d = dots[i][part];
                    out[i][part].q[j] = vpaddq_s32(vpaddq_s32(d[0], d[1]), vpaddq_s32(d[2], d[3]));
                }
        }
    }

    // Columns of group `part`.
    template <int columns>
    HY3_INLINE int32x4_t dot_columns(const I& row, const int8_t* q, int part) {
        int32x4_t sum = vdupq_n_s32(0);
        for (int k = part * columns / 16; k < (part + 1) * columns / 16; k++)
            sum = dot4_quarter(sum, vreinterpretq_s8_s32(row.q[k]), vld1q_s8(q + 16 * k));
        return sum;
    }
};
