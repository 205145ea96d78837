// What the vector vocabularies of AVX2 and AVX-512 have in common: operations on at most 32 bytes. Included
// by both; what each means is in simd_scalar.h.

HY3_INLINE float half_to_float(uint16_t h) {
    return _cvtsh_ss(h);
}
HY3_INLINE int read_half(const uint8_t* p) {
    uint16_t half;
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
