// What the vector vocabularies of AVX2 and AVX-512 have in common: operations on at most 32 bytes. Included
// by both; what each means is in simd_scalar.h.

HY3_INLINE float half_to_float(uint16_t h) {
    return _cvtsh_ss(h);
}

// u[i] = table[nibble i] + offset: the low nibbles of 16 bytes, then the high ones.
HY3_INLINE void lookup_nibbles(const int8_t* table, int offset, const uint8_t* packed, uint8_t* u) {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packed));
    const __m128i mask = _mm_set1_epi8(15), shift = _mm_set1_epi8(static_cast<char>(offset));
    const __m128i low = _mm_and_si128(bytes, mask), high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    auto* to = reinterpret_cast<__m128i*>(u);
    _mm_storeu_si128(to, _mm_add_epi8(_mm_shuffle_epi8(values, low), shift));
    _mm_storeu_si128(to + 1, _mm_add_epi8(_mm_shuffle_epi8(values, high), shift));
}

// Eight signed bytes, the lowest first, times a factor.
HY3_INLINE void scale_bytes(uint64_t bytes, float factor, float* out) {
    const __m256i words = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_cvtepi32_ps(words), _mm256_set1_ps(factor)));
}
