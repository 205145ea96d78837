// What the vector vocabularies without masks and large tables have in common, in terms of their other
// operations: plain C++, AVX2, NEON. Included at the end of each.

// The first n lanes; the rest are zero, or not written.
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

// Entries index[0..31] of a grid of eight bytes an entry. `packed` has them with two bits a byte, which of
// four `values`; it is for vectors that hold a table of that size.
HY3_INLINE void grid_of_8(const uint8_t (*grid)[8], const uint16_t* packed, const uint8_t* values,
                          const uint8_t* index, I out[4]) {
    (void)packed, (void)values;
    for (int i = 0; i < 4; i++) out[i] = grid_of_8(grid, index + 8 * i);
}
