// dot4() on AVX2.

constexpr int kRowBlock = 4;
constexpr int kDottedRowsQ8_0 = 4;
constexpr int kDottedRowsOfQuads = 2;
constexpr int kWideOffset = 0;
struct Dot4Tile;
template <typename Interleaving>
struct MaddubsTile;
using Tile = MaddubsTile<Dot4Tile>;

// maddubs adds pairs of products in 16 bits with saturation, which products of bytes above 127 can reach. So
// codes of eight bits are signed ones, and their magnitudes, at most 128, are multiplied with bytes that take
// their signs.
template <int code_bits>
HY3_INLINE __m256i dot4_half(__m256i sum, __m256i codes, __m256i s8) {
    if constexpr (code_bits == 8) {
        s8 = _mm256_sign_epi8(s8, codes);
        codes = _mm256_abs_epi8(codes);
    }
    const __m256i pairs = _mm256_maddubs_epi16(codes, s8);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
template <int code_bits>
HY3_INLINE I dot4(I sum, I codes, I s8) {
    return {dot4_half<code_bits>(sum.lo, codes.lo, s8.lo), dot4_half<code_bits>(sum.hi, codes.hi, s8.hi)};
}

// One after the other: gcc would make a tree of a chain of sums, and keep all its leaves in memory.
HY3_INLINE __m256i add_next(__m256i sum, __m256i pairs) {
    sum = _mm256_add_epi16(sum, pairs);
    __asm__("" : "+x"(sum));
    return sum;
}
HY3_INLINE __m256i add_next_32(__m256i sum, __m256i quads) {
    sum = _mm256_add_epi32(sum, quads);
    __asm__("" : "+x"(sum));
    return sum;
}

// As generic/tile.h has it. The products of small codes are added in 16 bits for as long as they fit: to
// bring each pair to 32 bits would be half of the work.
template <typename Interleaving>
struct MaddubsTile : Interleaving {
    template <int columns, int code_bits, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        if constexpr (code_bits == 8)
            add_signed<columns, n>(words, q, column, dots);
        else
            add_small<columns, code_bits, n>(words, q, column, dots);
    }

    // Half of the weight rows after the other, so that all sums stay in registers.
    template <int columns, int n>
    HY3_INLINE void add_signed(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        const int8_t* x[n];
        for (int i = 0; i < n; i++) x[i] = q[i] + column;
        add_half<columns, &I::lo, n>(words, x, dots);
        // Hidden from gcc, which would keep what it has read for the second time.
        for (int i = 0; i < n; i++) __asm__("" : "+r"(x[i]));
        add_half<columns, &I::hi, n>(words + 32, x, dots);
    }
    template <int columns, __m256i I::* half, int n>
    HY3_INLINE void add_half(const uint8_t* words, const int8_t* const* q, I* dots) {
        const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
        for (int word = 0; word < columns / 4; word++) {
            const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + word * 64));
            const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 8
            for (int i = 0; i < n; i++) {
                const __m256i x = _mm256_sign_epi8(repeat4(q[i] + 4 * word).lo, w);
                dots[i].*half =
                    add_next_32(dots[i].*half, _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, x), ones));
            }
        }
    }

    template <int columns, int code_bits, int n>
    HY3_INLINE void add_small(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        // So many pairs of products, each below 2^code_bits * 127, stay below 2^15.
        constexpr int most = 1 << (7 - code_bits);
        constexpr int run = most < columns / 4 ? most : columns / 4;
        const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
        for (int first = 0; first < columns / 4; first += run) {
            I sums[n];
#pragma GCC unroll 8
            for (int word = first; word < first + run; word++) {
                const I w = load_bytes(words + word * 64);
#pragma GCC unroll 8
                for (int i = 0; i < n; i++) {
                    const I x = repeat4(q[i] + column + 4 * word);
                    const I pairs = {_mm256_maddubs_epi16(w.lo, x.lo), _mm256_maddubs_epi16(w.hi, x.hi)};
                    sums[i] = word == first
                                  ? pairs
                                  : I{add_next(sums[i].lo, pairs.lo), add_next(sums[i].hi, pairs.hi)};
                }
            }
#pragma GCC unroll 8
            for (int i = 0; i < n; i++)
                dots[i] =
                    iadd(dots[i], {_mm256_madd_epi16(sums[i].lo, ones), _mm256_madd_epi16(sums[i].hi, ones)});
        }
    }
};
