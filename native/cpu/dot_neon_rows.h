// What the tiles of all NEON tables have in common. Included after dot4_quarter().

struct NeonRows {
    // See generic/tile.h. Dot products add the columns of a group, and pairwise additions bring the rows to
    // their lanes.
    template <int group, bool wide>
    HY3_INLINE void dot_rows(const uint8_t* rows, int64_t stride, const int8_t* q, I out[64 / group]) {
        static_assert(!wide, "weight codes are signed (kWideOffset)");
        for (int part = 0; part < 64 / group; part++, rows += group, q += group)
            out[part] = by_quarter<I>([&](int j) {
                int32x4_t dots[4];
                for (int r = 0; r < 4; r++) dots[r] = dot_columns<group>(rows + (4 * j + r) * stride, q);
                return vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
            });
    }

    template <int columns>
    HY3_INLINE int32x4_t dot_columns(const uint8_t* row, const int8_t* q) {
        int32x4_t sum = vdupq_n_s32(0);
        for (int c = 0; c < columns; c += 16)
            sum = dot4_quarter(sum, vreinterpretq_s8_u8(vld1q_u8(row + c)), vld1q_s8(q + c));
        return sum;
    }
};
