// What the vector vocabularies without masks have in common, in terms of their other operations: plain C++,
// AVX2, NEON. Included at the end of each.

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
