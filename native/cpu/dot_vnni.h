// dot4() on vectors of two 256-bit registers with VNNI: encoded as VEX (AVX-VNNI), or as EVEX (AVX-512) where
// the file is compiled without it.

constexpr int kRowBlock = 4;
constexpr int kDottedRowsQ8_0 = 2;
constexpr int kDottedRowsOfQuads = 4;
constexpr int kWideOffset = 128;
struct Dot4Tile;
using Tile = Dot4Tile;

HY3_INLINE __m256i dot4_half(__m256i sum, __m256i u8, __m256i s8) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, u8, s8);
#else
    return _mm256_dpbusd_epi32(sum, u8, s8);
#endif
}
template <int code_bits>
HY3_INLINE I dot4(I sum, I codes, I s8) {
    return {dot4_half(sum.lo, codes.lo, s8.lo), dot4_half(sum.hi, codes.hi, s8.hi)};
}
