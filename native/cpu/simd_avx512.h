// The vector vocabulary on AVX-512 (F, BW, VL, DQ) with VNNI: one register per vector.
//
// F is 16 floats, I is 16 int32 or 64 bytes. Included inside a namespace of its own by isa_avx512.cpp; what
// each operation means is in simd_scalar.h.

using F = __m512;
using I = __m512i;
#define HY3_INLINE [[gnu::always_inline]] static inline

constexpr int kRowBlock = 8;      // activation rows a quantized product keeps in registers
constexpr int kFloatWeights = 4;  // weight rows and
constexpr int kFloatRows = 4;     // activation rows a float product keeps in registers
constexpr int kCodeRows = 4;
constexpr int kDottedRowsQ8_0 = 2;
constexpr int kDottedRowsOfQuads = 4;
struct WholeVector;
using FloatPart = WholeVector;
constexpr int kWideOffset = 128;
struct Dot4Tile;
using Tile = Dot4Tile;

#include "cpu/simd_x86.h"

HY3_INLINE F load(const float* p) {
    return _mm512_loadu_ps(p);
}
HY3_INLINE void store(float* p, F x) {
    _mm512_storeu_ps(p, x);
}
HY3_INLINE __mmask16 first_lanes(int n) {
    return static_cast<__mmask16>((1u << n) - 1u);
}
HY3_INLINE F load_first(const float* p, int n) {
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
HY3_INLINE void store_first(float* p, F x, int n) {
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
HY3_INLINE F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
HY3_INLINE void store_f16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
HY3_INLINE F load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

HY3_INLINE F set1(float x) {
    return _mm512_set1_ps(x);
}
HY3_INLINE F add(F a, F b) {
    return _mm512_add_ps(a, b);
}
HY3_INLINE F sub(F a, F b) {
    return _mm512_sub_ps(a, b);
}
HY3_INLINE F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
}
HY3_INLINE F div(F a, F b) {
    return _mm512_div_ps(a, b);
}
HY3_INLINE F fma(F a, F b, F c) {
    return _mm512_fmadd_ps(a, b, c);
}
HY3_INLINE F larger(F a, F b) {
    return _mm512_max_ps(a, b);
}
HY3_INLINE F smaller(F a, F b) {
    return _mm512_min_ps(a, b);
}

HY3_INLINE I load_bytes(const void* p) {
    return _mm512_loadu_si512(p);
}
HY3_INLINE void store_bytes(void* p, I x) {
    _mm512_storeu_si512(p, x);
}
HY3_INLINE I repeat4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}
HY3_INLINE I repeat16(const int8_t* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HY3_INLINE I low_nibbles(I x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
HY3_INLINE I high_nibbles(I x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
HY3_INLINE I iset1(int32_t x) {
    return _mm512_set1_epi32(x);
}
HY3_INLINE I iadd(I a, I b) {
    return _mm512_add_epi32(a, b);
}
HY3_INLINE I ilarger(I a, I b) {
    return _mm512_max_epi32(a, b);
}
template <int code_bits>
HY3_INLINE I dot4(I sum, I codes, I s8) {
    return _mm512_dpbusd_epi32(sum, codes, s8);
}
HY3_INLINE F to_float(I x) {
    return _mm512_cvtepi32_ps(x);
}
HY3_INLINE I round_to_int(F x) {
    return _mm512_cvtps_epi32(x);
}
HY3_INLINE I abs_bits(F x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}
HY3_INLINE F power_of_two(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
HY3_INLINE void store_int8(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
}
HY3_INLINE int32_t sum_lanes(I x) {
    return _mm512_reduce_add_epi32(x);
}
HY3_INLINE int32_t largest_lane(I x) {
    return _mm512_reduce_max_epi32(x);
}

// Within each 128-bit quarter: lane r of the result is the sum of the quarter of row r, r = 0..3.
HY3_INLINE I sum_quarters(I a, I b, I c, I d) {
    const I ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const I cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
HY3_INLINE F sum_quarters(F a, F b, F c, F d) {
    const F ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const F cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
// out[j] = quarter j of a, b, c, d one after the other.
HY3_INLINE void gather_quarters(I a, I b, I c, I d, I out[4]) {
    const I ab_lo = _mm512_shuffle_i32x4(a, b, 0x44), ab_hi = _mm512_shuffle_i32x4(a, b, 0xee);
    const I cd_lo = _mm512_shuffle_i32x4(c, d, 0x44), cd_hi = _mm512_shuffle_i32x4(c, d, 0xee);
    out[0] = _mm512_shuffle_i32x4(ab_lo, cd_lo, 0x88);
    out[1] = _mm512_shuffle_i32x4(ab_lo, cd_lo, 0xdd);
    out[2] = _mm512_shuffle_i32x4(ab_hi, cd_hi, 0x88);
    out[3] = _mm512_shuffle_i32x4(ab_hi, cd_hi, 0xdd);
}
HY3_INLINE void gather_quarters(F a, F b, F c, F d, F out[4]) {
    I words[4];
    gather_quarters(_mm512_castps_si512(a), _mm512_castps_si512(b), _mm512_castps_si512(c),
                    _mm512_castps_si512(d), words);
    for (int j = 0; j < 4; j++) out[j] = _mm512_castsi512_ps(words[j]);
}
// Within each quarter, the 4x4 transpose of 32-bit words of rows a, b, c, d.
HY3_INLINE void transpose_quarters(I a, I b, I c, I d, I out[4]) {
    const I ab_lo = _mm512_unpacklo_epi32(a, b), ab_hi = _mm512_unpackhi_epi32(a, b);
    const I cd_lo = _mm512_unpacklo_epi32(c, d), cd_hi = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab_lo, cd_lo);
    out[1] = _mm512_unpackhi_epi64(ab_lo, cd_lo);
    out[2] = _mm512_unpacklo_epi64(ab_hi, cd_hi);
    out[3] = _mm512_unpackhi_epi64(ab_hi, cd_hi);
}

// On bytes; see simd_scalar_bytes.h.
HY3_INLINE I load_halves(const void* a, const void* b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(static_cast<const __m256i*>(a))),
                              _mm256_loadu_si256(static_cast<const __m256i*>(b)), 1);
}
// Broadcasts under a mask need no shuffle.
HY3_INLINE I load_quarters(const void* a, const void* b, const void* c, const void* d) {
    const auto quarter = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
    I x = _mm512_castsi128_si512(quarter(a));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, quarter(b));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, quarter(c));
    return _mm512_mask_broadcast_i32x4(x, 0xf000, quarter(d));
}
HY3_INLINE I set_bytes(int value) {
    return _mm512_set1_epi8(static_cast<char>(value));
}
HY3_INLINE I add_bytes(I a, I b) {
    return _mm512_add_epi8(a, b);
}
HY3_INLINE I either(I a, I b) {
    return _mm512_or_si512(a, b);
}
template <int right, uint32_t mask>
HY3_INLINE I bits(I x) {
    if constexpr (right != 0) x = _mm512_ror_epi32(x, right & 31);
    return _mm512_and_si512(x, iset1(static_cast<int32_t>(mask)));
}
// 32-bit words a in the low half, b in the high one.
HY3_INLINE I words_by_half(int a, int b) {
    return _mm512_set_epi32(b, b, b, b, b, b, b, b, a, a, a, a, a, a, a, a);
}
template <int first, int second, uint32_t mask>
HY3_INLINE I bit_planes(const uint8_t* p) {
    const I twice = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_and_si512(_mm512_rorv_epi32(twice, words_by_half(first & 31, second & 31)),
                            iset1(static_cast<int32_t>(mask)));
}
HY3_INLINE I nibbles_by_16(const uint8_t* a, const uint8_t* b) {
    const I low = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
    const I both =
        _mm512_mask_broadcast_i32x4(low, 0xff00, _mm_loadu_si128(reinterpret_cast<const __m128i*>(b)));
    const I counts = _mm512_set_epi32(4, 4, 4, 4, 0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0);
    return _mm512_and_si512(_mm512_srlv_epi32(both, counts), _mm512_set1_epi8(15));
}
HY3_INLINE I bytes_where(uint64_t set, int value) {
    return _mm512_maskz_mov_epi8(set, set_bytes(value));
}
HY3_INLINE I bytes_where(uint32_t word, const BitChoice& choice, int value) {
    const I bytes = _mm512_shuffle_epi8(iset1(static_cast<int32_t>(word)), load_bytes(choice.byte));
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(bytes, load_bytes(choice.bit)), set_bytes(value));
}
HY3_INLINE I signed_bytes(I x, const uint8_t* minus, int offset) {
    __mmask64 set;
    __builtin_memcpy(&set, minus, 8);
    const I shifted = add_bytes(x, set_bytes(offset));
    return _mm512_mask_sub_epi8(shifted, set, set_bytes(2 * offset), shifted);
}
HY3_INLINE I lookup_16(const void* table, I index) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(table))),
                               index);
}
HY3_INLINE I join_quarters(__m128i a, __m128i b, __m128i c, __m128i d) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)), _mm256_set_m128i(d, c), 1);
}
// Entries go beside each other by broadcasts under a mask, which take no shuffle, in short chains.
template <int bits = 16, typename Grid, typename Index>
HY3_INLINE I grid_of_8(const Grid* grid, const Index* low, const Index* high) {
    const auto two = [&](uint64_t at, int i) {
        const auto entry = [&](int j) {
            const void* p = grid_entry<bits, Index>(grid, at, j);
            return _mm_loadl_epi64(static_cast<const __m128i*>(p));
        };
        return _mm_mask_broadcastq_epi64(entry(i), 2, entry(i + 1));
    };
    const uint64_t first = four_indices(low), second = four_indices(high);
    return join_quarters(two(first, 0), two(first, 2), two(second, 0), two(second, 2));
}
// Loaded one by one: a gather takes half as long again on Zen 4.
template <typename Grid, typename Index>
HY3_INLINE I grid_of_4(const Grid* grid, const Index* index) {
    const auto four = [&](const Index* p) {
        const uint64_t at = four_indices(p);
        const auto entry = [&](int i) { return _mm_loadu_si32(grid_entry<16, Index>(grid, at, i)); };
        __m128i x = _mm_mask_broadcastd_epi32(entry(0), 2, entry(1));
        x = _mm_mask_broadcastd_epi32(x, 4, entry(2));
        return _mm_mask_broadcastd_epi32(x, 8, entry(3));
    };
    return join_quarters(four(index), four(index + 4), four(index + 8), four(index + 12));
}
HY3_INLINE void store_odd_words(void* to, I x) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi64_epi32(_mm512_srli_epi64(x, 32)));
}
HY3_INLINE void store_low_bytes(uint8_t* to, I x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(x));
}
HY3_INLINE F low_half_to_float(I words) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
template <int at>
HY3_INLINE F byte_to_float(I words) {
    if constexpr (at < 3) words = _mm512_slli_epi32(words, 24 - 8 * at);
    return to_float(_mm512_srai_epi32(words, 24));
}

HY3_INLINE F load_f16_each(const uint8_t* const* rows, int64_t at) {
    return _mm512_cvtph_ps(_mm256_set_m128i(halves_of_8(rows + 8, at), halves_of_8(rows, at)));
}
