// The vector vocabulary on AVX2 with FMA and F16C, without dot4() (dot_*.h): a vector is two registers, the
// low and the high half.
//
// Included inside namespaces of their own by isa_avx2.cpp and isa_avxvnni*.cpp; what each operation means is
// in simd_scalar.h.

struct F {
    __m256 lo, hi;
};
struct I {
    __m256i lo, hi;
};
#define HY3_INLINE [[gnu::always_inline]] static inline

constexpr int kFloatWeights = 2;
constexpr int kFloatRows = 2;

HY3_INLINE F load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
HY3_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
}
HY3_INLINE F load_first(const float* p, int n) {
    float lanes[16] = {};
    for (int i = 0; i < n; i++) lanes[i] = p[i];
    return load(lanes);
}
HY3_INLINE void store_first(float* p, F x, int n) {
    float lanes[16];
    store(lanes, x);
    for (int i = 0; i < n; i++) p[i] = lanes[i];
}
HY3_INLINE F load_f16(const uint16_t* p) {
    const auto* from = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(from)), _mm256_cvtph_ps(_mm_loadu_si128(from + 1))};
}
HY3_INLINE void store_f16(uint16_t* p, F x) {
    auto* to = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(to, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(to + 1, _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
HY3_INLINE __m256 widen_bf16(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
HY3_INLINE F load_bf16(const uint16_t* p) {
    const auto* from = reinterpret_cast<const __m128i*>(p);
    return {widen_bf16(_mm_loadu_si128(from)), widen_bf16(_mm_loadu_si128(from + 1))};
}

HY3_INLINE F set1(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
HY3_INLINE F add(F a, F b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
HY3_INLINE F sub(F a, F b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
HY3_INLINE F mul(F a, F b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
HY3_INLINE F div(F a, F b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
HY3_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
HY3_INLINE F larger(F a, F b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
HY3_INLINE F smaller(F a, F b) {
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}

HY3_INLINE I load_bytes(const void* p) {
    const auto* from = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
}
HY3_INLINE void store_bytes(void* p, I x) {
    auto* to = static_cast<__m256i*>(p);
    _mm256_storeu_si256(to, x.lo);
    _mm256_storeu_si256(to + 1, x.hi);
}
HY3_INLINE I repeat4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return {_mm256_set1_epi32(word), _mm256_set1_epi32(word)};
}
HY3_INLINE I iset1(int32_t x) {
    return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
HY3_INLINE I iadd(I a, I b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
HY3_INLINE I ilarger(I a, I b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
}
HY3_INLINE F to_float(I x) {
    return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}
HY3_INLINE I round_to_int(F x) {
    return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
}
HY3_INLINE I abs_bits(F x) {
    const __m256i mask = _mm256_set1_epi32(0x7fffffff);
    return {_mm256_and_si256(_mm256_castps_si256(x.lo), mask),
            _mm256_and_si256(_mm256_castps_si256(x.hi), mask)};
}
HY3_INLINE __m256 power_of_two_half(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
HY3_INLINE F power_of_two(I n) {
    return {power_of_two_half(n.lo), power_of_two_half(n.hi)};
}
HY3_INLINE void store_int8(int8_t* p, I x) {
    int32_t lanes[16];
    store_bytes(lanes, x);
    for (int i = 0; i < 16; i++) p[i] = static_cast<int8_t>(lanes[i]);
}
HY3_INLINE int32_t sum_lanes(I x) {
    int32_t lanes[16], sum = 0;
    store_bytes(lanes, x);
    for (const int32_t lane : lanes) sum += lane;
    return sum;
}
HY3_INLINE int32_t largest_lane(I x) {
    int32_t lanes[16];
    store_bytes(lanes, x);
    int32_t largest = lanes[0];
    for (const int32_t lane : lanes) largest = lane > largest ? lane : largest;
    return largest;
}

HY3_INLINE __m256i sum_quarters_half(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}
HY3_INLINE I sum_quarters(I a, I b, I c, I d) {
    return {sum_quarters_half(a.lo, b.lo, c.lo, d.lo), sum_quarters_half(a.hi, b.hi, c.hi, d.hi)};
}
HY3_INLINE __m256 sum_quarters_half(__m256 a, __m256 b, __m256 c, __m256 d) {
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
HY3_INLINE F sum_quarters(F a, F b, F c, F d) {
    return {sum_quarters_half(a.lo, b.lo, c.lo, d.lo), sum_quarters_half(a.hi, b.hi, c.hi, d.hi)};
}
HY3_INLINE void gather_quarters(I a, I b, I c, I d, I out[4]) {
    out[0] = {_mm256_permute2x128_si256(a.lo, b.lo, 0x20), _mm256_permute2x128_si256(c.lo, d.lo, 0x20)};
    out[1] = {_mm256_permute2x128_si256(a.lo, b.lo, 0x31), _mm256_permute2x128_si256(c.lo, d.lo, 0x31)};
    out[2] = {_mm256_permute2x128_si256(a.hi, b.hi, 0x20), _mm256_permute2x128_si256(c.hi, d.hi, 0x20)};
    out[3] = {_mm256_permute2x128_si256(a.hi, b.hi, 0x31), _mm256_permute2x128_si256(c.hi, d.hi, 0x31)};
}
HY3_INLINE I words_of(F x) {
    return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)};
}
HY3_INLINE void gather_quarters(F a, F b, F c, F d, F out[4]) {
    I words[4];
    gather_quarters(words_of(a), words_of(b), words_of(c), words_of(d), words);
    for (int j = 0; j < 4; j++) out[j] = {_mm256_castsi256_ps(words[j].lo), _mm256_castsi256_ps(words[j].hi)};
}
HY3_INLINE void transpose_half(__m256i a, __m256i b, __m256i c, __m256i d, __m256i out[4]) {
    const __m256i ab_lo = _mm256_unpacklo_epi32(a, b), ab_hi = _mm256_unpackhi_epi32(a, b);
    const __m256i cd_lo = _mm256_unpacklo_epi32(c, d), cd_hi = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab_lo, cd_lo);
    out[1] = _mm256_unpackhi_epi64(ab_lo, cd_lo);
    out[2] = _mm256_unpacklo_epi64(ab_hi, cd_hi);
    out[3] = _mm256_unpackhi_epi64(ab_hi, cd_hi);
}
HY3_INLINE void transpose_quarters(I a, I b, I c, I d, I out[4]) {
    __m256i lo[4], hi[4];
    transpose_half(a.lo, b.lo, c.lo, d.lo, lo);
    transpose_half(a.hi, b.hi, c.hi, d.hi, hi);
    for (int j = 0; j < 4; j++) out[j] = {lo[j], hi[j]};
}

#include "cpu/simd_x86.h"
