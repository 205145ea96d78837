// What the vector vocabularies of AVX2 and AVX-512 have in common: operations on at most 32 bytes. Included
// by both; what each means is in simd_scalar.h.

HY3_INLINE float half_to_float(uint16_t h) {
    return _cvtsh_ss(h);
}
HY3_INLINE int16_t read_half(const uint8_t* p) {
    int16_t half;
    __builtin_memcpy(&half, p, 2);
    return half;
}
// What load_f16_each() loads, of eight rows.
HY3_INLINE __m128i halves_of_8(const uint8_t* const* rows, int64_t at) {
    __m128i x = _mm_setzero_si128();
    x = _mm_insert_epi16(x, read_half(rows[0] + at), 0);
    x = _mm_insert_epi16(x, read_half(rows[1] + at), 1);
    x = _mm_insert_epi16(x, read_half(rows[2] + at), 2);
    x = _mm_insert_epi16(x, read_half(rows[3] + at), 3);
    x = _mm_insert_epi16(x, read_half(rows[4] + at), 4);
    x = _mm_insert_epi16(x, read_half(rows[5] + at), 5);
    x = _mm_insert_epi16(x, read_half(rows[6] + at), 6);
    return _mm_insert_epi16(x, read_half(rows[7] + at), 7);
}
// A field and what lies above it go to a lane of 16 bits; a multiplication brings the field to its top.
template <int width>
HY3_INLINE void store_indices(uint16_t* to, const uint8_t* low, uint32_t first, uint32_t second) {
    constexpr auto bytes = [](int i) {  // those that field i begins in
        return static_cast<int16_t>((width * i / 8 + 1) << 8 | width * i / 8);
    };
    constexpr auto factor = [](int i) { return static_cast<int16_t>(1u << (16 - width - width * i % 8)); };
    const __m128i at =
        _mm_set_epi16(bytes(7), bytes(6), bytes(5), bytes(4), bytes(3), bytes(2), bytes(1), bytes(0));
    const __m128i factors =
        _mm_set_epi16(factor(7), factor(6), factor(5), factor(4), factor(3), factor(2), factor(1), factor(0));
    const __m256i words = _mm256_set_m128i(_mm_cvtsi32_si128(static_cast<int>(second)),
                                           _mm_cvtsi32_si128(static_cast<int>(first)));
    const __m256i tops = _mm256_mullo_epi16(_mm256_shuffle_epi8(words, _mm256_set_m128i(at, at)),
                                            _mm256_set_m128i(factors, factors));
    const __m256i fields =
        _mm256_and_si256(_mm256_srli_epi16(tops, 8 - width), _mm256_set1_epi16(((1 << width) - 1) << 8));
    const __m256i bytes_of_16 = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_or_si256(bytes_of_16, fields));
}

// Of the codebooks' grids. Loads are the limit, with two a cycle, and there are few ways between vector and
// general registers. So four indices come by one load, hidden from gcc, which would take each out of the
// vector that they were stored from; and each entry goes to a vector without a detour.
template <typename Index>
HY3_INLINE uint64_t four_indices(const Index* p) {
    uint64_t word = 0;
    __builtin_memcpy(&word, p, 4 * sizeof(Index));
    __asm__("" : "+r"(word));
    return word;
}
// That of index i of four; of an index the lowest `bits` bits count.
template <int bits, typename Index, typename Grid>
HY3_INLINE const void* grid_entry(const Grid* grid, uint64_t indices, int i) {
    constexpr int size = static_cast<int>(8 * sizeof(Index)), used = bits < size ? bits : size;
    return grid[indices >> (size * i) & ((1u << used) - 1u)];
}
