// What the vector vocabularies of AVX2 and AVX-512 have in common: operations on at most 32 bytes. Included
// by both; what each means is in simd_scalar.h.

HY3_INLINE float half_to_float(uint16_t h) {
    return _cvtsh_ss(h);
}
