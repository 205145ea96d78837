// dot4() from dot4_quarter(), which multiplies signed bytes.

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
