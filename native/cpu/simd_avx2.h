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
constexpr int kCodeRows = 2;
struct HalfVector;
using FloatPart = HalfVector;

#include "cpu/simd_x86.h"

HY3_INLINE F load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
HY3_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
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

// Blocks of 4 x 3: twelve registers for sums, and seven loads for twelve fma. Whole vectors would leave room
// for 2 x 2, with a load for every fma.
struct HalfVector {
    using Value = __m256;
    static constexpr int lanes = 8;
    static constexpr int weights = 4;
    static constexpr int rows = 3;
    static constexpr bool asks = true;
    HY3_INLINE __m256 of_f32(const float* p) { return _mm256_loadu_ps(p); }
    HY3_INLINE __m256 of_f16(const uint16_t* p) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    HY3_INLINE __m256 of_bf16(const uint16_t* p) {
        return widen_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
};
HY3_INLINE void store(float* p, __m256 x) {
    _mm256_storeu_ps(p, x);
}
HY3_INLINE __m256 fma(__m256 a, __m256 b, __m256 c) {
    return _mm256_fmadd_ps(a, b, c);
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
HY3_INLINE I repeat16(const int8_t* p) {
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {x, x};
}
HY3_INLINE I low_nibbles(I x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.lo, mask), _mm256_and_si256(x.hi, mask)};
}
HY3_INLINE I high_nibbles(I x) {
    return low_nibbles({_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)});
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

// On bytes; see simd_scalar_bytes.h.
HY3_INLINE I load_halves(const void* a, const void* b) {
    return {_mm256_loadu_si256(static_cast<const __m256i*>(a)),
            _mm256_loadu_si256(static_cast<const __m256i*>(b))};
}
HY3_INLINE __m256i load_two(const void* a, const void* b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(a))),
                                   _mm_loadu_si128(static_cast<const __m128i*>(b)), 1);
}
HY3_INLINE I load_quarters(const void* a, const void* b, const void* c, const void* d) {
    return {load_two(a, b), load_two(c, d)};
}
HY3_INLINE I set_bytes(int value) {
    const __m256i x = _mm256_set1_epi8(static_cast<char>(value));
    return {x, x};
}
HY3_INLINE I add_bytes(I a, I b) {
    return {_mm256_add_epi8(a.lo, b.lo), _mm256_add_epi8(a.hi, b.hi)};
}
HY3_INLINE I either(I a, I b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
}
template <int right, uint32_t mask>
HY3_INLINE __m256i bits_half(__m256i x) {
    if constexpr (right > 0) x = _mm256_srli_epi32(x, right);
    if constexpr (right < 0) x = _mm256_slli_epi32(x, -right);
    return _mm256_and_si256(x, _mm256_set1_epi32(static_cast<int32_t>(mask)));
}
template <int right, uint32_t mask>
HY3_INLINE I bits(I x) {
    return {bits_half<right, mask>(x.lo), bits_half<right, mask>(x.hi)};
}
template <int first, int second, uint32_t mask>
HY3_INLINE I bit_planes(const uint8_t* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {bits_half<first, mask>(x), bits_half<second, mask>(x)};
}
HY3_INLINE __m256i nibbles_half(const uint8_t* p) {
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_and_si256(_mm256_srlv_epi32(twice, _mm256_set_epi32(4, 4, 4, 4, 0, 0, 0, 0)),
                            _mm256_set1_epi8(15));
}
HY3_INLINE I nibbles_by_16(const uint8_t* a, const uint8_t* b) {
    return {nibbles_half(a), nibbles_half(b)};
}
// 0xff in the bytes whose bit, of the byte of the word that `byte` says, is set.
HY3_INLINE __m256i chosen_bits(uint32_t word, __m256i byte, __m256i bit) {
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(word)), byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}
// 0xff in the bytes whose bit is set.
HY3_INLINE __m256i spread_bits(uint32_t set) {
    const __m256i byte_of_each =
        _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202, 0x0101010101010101, 0);
    return chosen_bits(set, byte_of_each, _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201)));
}
HY3_INLINE I bytes_where(uint64_t set, int value) {
    const __m256i x = _mm256_set1_epi8(static_cast<char>(value));
    return {_mm256_and_si256(x, spread_bits(static_cast<uint32_t>(set))),
            _mm256_and_si256(x, spread_bits(static_cast<uint32_t>(set >> 32)))};
}
HY3_INLINE I bytes_where(uint32_t word, const BitChoice& choice, int value) {
    const __m256i x = _mm256_set1_epi8(static_cast<char>(value));
    const I byte = load_bytes(choice.byte), bit = load_bytes(choice.bit);
    return {_mm256_and_si256(x, chosen_bits(word, byte.lo, bit.lo)),
            _mm256_and_si256(x, chosen_bits(word, byte.hi, bit.hi))};
}
// -x = (x ^ -1) - -1
HY3_INLINE __m256i signed_half(__m256i x, const uint8_t* minus, __m256i offset) {
    uint32_t set;
    __builtin_memcpy(&set, minus, 4);
    const __m256i negative = spread_bits(set);
    return _mm256_add_epi8(_mm256_sub_epi8(_mm256_xor_si256(x, negative), negative), offset);
}
HY3_INLINE I signed_bytes(I x, const uint8_t* minus, int offset) {
    const __m256i shift = _mm256_set1_epi8(static_cast<char>(offset));
    return {signed_half(x.lo, minus, shift), signed_half(x.hi, minus + 4, shift)};
}
HY3_INLINE I lookup_16(const void* table, I index) {
    const __m256i values = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(values, index.lo), _mm256_shuffle_epi8(values, index.hi)};
}
// Hidden from gcc, which would load entries to general registers first.
template <int bits, typename Index, typename Grid>
HY3_INLINE __m128i load_entry(const Grid* grid, uint64_t indices, int i) {
    const void* p = grid_entry<bits, Index>(grid, indices, i);
    __m128i x = sizeof(Grid) == 8 ? _mm_loadl_epi64(static_cast<const __m128i*>(p))
                                  : _mm_castps_si128(_mm_load_ss(static_cast<const float*>(p)));
    __asm__("" : "+x"(x));
    return x;
}
template <int bits = 16, typename Grid, typename Index>
HY3_INLINE I grid_of_8(const Grid* grid, const Index* low, const Index* high) {
    const auto four = [&](const Index* p) {
        const uint64_t at = four_indices(p);
        const auto entry = [&](int i) { return load_entry<bits, Index>(grid, at, i); };
        return _mm256_set_m128i(_mm_unpacklo_epi64(entry(2), entry(3)),
                                _mm_unpacklo_epi64(entry(0), entry(1)));
    };
    return {four(low), four(high)};
}
template <typename Grid, typename Index>
HY3_INLINE I grid_of_4(const Grid* grid, const Index* index) {
    const auto four = [&](const Index* p) {
        const uint64_t at = four_indices(p);
        const auto entry = [&](int i) { return load_entry<16, Index>(grid, at, i); };
        return _mm_unpacklo_epi64(_mm_unpacklo_epi32(entry(0), entry(1)),
                                  _mm_unpacklo_epi32(entry(2), entry(3)));
    };
    return {_mm256_set_m128i(four(index + 4), four(index)),
            _mm256_set_m128i(four(index + 12), four(index + 8))};
}
HY3_INLINE void store_odd_words(void* to, I x) {
    const __m256i order = _mm256_set_epi32(0, 0, 0, 0, 7, 5, 3, 1);
    const auto half = [&](__m256i y) {
        return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(y, order));
    };
    auto* out = static_cast<__m128i*>(to);
    _mm_storeu_si128(out, half(x.lo));
    _mm_storeu_si128(out + 1, half(x.hi));
}
HY3_INLINE void store_low_bytes(uint8_t* to, I x) {
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i mixed = _mm256_packus_epi16(_mm256_and_si256(x.lo, low), _mm256_and_si256(x.hi, low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(mixed, 0xd8));
}
HY3_INLINE F low_half_to_float(I words) {
    const __m256i mask = _mm256_set1_epi32(0xffff);
    const __m256i mixed =
        _mm256_packus_epi32(_mm256_and_si256(words.lo, mask), _mm256_and_si256(words.hi, mask));
    const __m256i halves = _mm256_permute4x64_epi64(mixed, 0xd8);
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
template <int at>
HY3_INLINE __m256 byte_to_float_half(__m256i words) {
    if constexpr (at < 3) words = _mm256_slli_epi32(words, 24 - 8 * at);
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(words, 24));
}
template <int at>
HY3_INLINE F byte_to_float(I words) {
    return {byte_to_float_half<at>(words.lo), byte_to_float_half<at>(words.hi)};
}

#include "cpu/simd_parts.h"

HY3_INLINE F load_f16_each(const uint8_t* const* rows, int64_t at) {
    return {_mm256_cvtph_ps(halves_of_8(rows, at)), _mm256_cvtph_ps(halves_of_8(rows + 8, at))};
}
