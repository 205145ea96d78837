// dot4() on AVX2.

constexpr int kRowBlock = 2;
constexpr int kWideOffset = 0;
constexpr bool kSignedDots = false;
struct Dot4Tile;
using Tile = Dot4Tile;

// maddubs adds pairs of products in 16 bits with saturation, which products of bytes above 127 can reach;
// those take the wide way: even and odd bytes apart, 16-bit products added in 32 bits.
template <bool wide>
HY3_INLINE __m256i dot4_half(__m256i sum, __m256i u8, __m256i s8) {
    if constexpr (!wide) {
        const __m256i pairs = _mm256_maddubs_epi16(u8, s8);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    } else {
        const __m256i even = _mm256_madd_epi16(_mm256_and_si256(u8, _mm256_set1_epi16(0xff)),
                                               _mm256_srai_epi16(_mm256_slli_epi16(s8, 8), 8));
        const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(u8, 8), _mm256_srai_epi16(s8, 8));
        return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
    }
}
template <bool wide>
HY3_INLINE I dot4(I sum, I u8, I s8) {
    return {dot4_half<wide>(sum.lo, u8.lo, s8.lo), dot4_half<wide>(sum.hi, u8.hi, s8.hi)};
}
// Signed codes: their magnitudes, times activations that take the codes' signs. At most 128 * 127, so that
// two products fit 16 bits.
template <bool eight_bits>
HY3_INLINE __m256i dot4_weights_half(__m256i sum, __m256i codes, __m256i s8) {
    if constexpr (eight_bits)
        return dot4_half<false>(sum, _mm256_abs_epi8(codes), _mm256_sign_epi8(s8, codes));
    return dot4_half<false>(sum, codes, s8);
}
template <bool eight_bits>
HY3_INLINE I dot4_weights(I sum, I codes, I s8) {
    return {dot4_weights_half<eight_bits>(sum.lo, codes.lo, s8.lo),
            dot4_weights_half<eight_bits>(sum.hi, codes.hi, s8.hi)};
}
