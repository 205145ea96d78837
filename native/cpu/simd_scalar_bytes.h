// The vector vocabulary in plain C++, continued: what every operation on bytes means. Included by
// simd_scalar.h.

struct Bytes {
    alignas(64) uint8_t v[64];
};
HY3_INLINE Bytes bytes_of(I x) {
    Bytes out;
    store_bytes(out.v, x);
    return out;
}

// 32 bytes from a, then 32 from b.
HY3_INLINE I load_halves(const void* a, const void* b) {
    Bytes x;
    __builtin_memcpy(x.v, a, 32);
    __builtin_memcpy(x.v + 32, b, 32);
    return load_bytes(x.v);
}
// 16 bytes from each.
HY3_INLINE I load_quarters(const void* a, const void* b, const void* c, const void* d) {
    Bytes x;
    const void* from[4] = {a, b, c, d};
    for (int i = 0; i < 4; i++) __builtin_memcpy(x.v + 16 * i, from[i], 16);
    return load_bytes(x.v);
}
HY3_INLINE I set_bytes(int value) {
    Bytes x;
    for (uint8_t& byte : x.v) byte = static_cast<uint8_t>(value);
    return load_bytes(x.v);
}
HY3_INLINE I add_bytes(I a, I b) {
    Bytes x = bytes_of(a);
    const Bytes y = bytes_of(b);
    for (int i = 0; i < 64; i++) x.v[i] = static_cast<uint8_t>(x.v[i] + y.v[i]);
    return load_bytes(x.v);
}

// Every 32-bit word shifted right (left, if negative), under a mask that hides what a rotation would leave.
template <int right, uint32_t mask>
HY3_INLINE I bits(I x) {
    uint32_t words[16];
    store_bytes(words, x);
    for (uint32_t& word : words) word = (right >= 0 ? word >> (right & 31) : word << (-right & 31)) & mask;
    return load_bytes(words);
}
// The same of 32 bytes, twice: shifted by `first`, then by `second`.
template <int first, int second, uint32_t mask>
HY3_INLINE I bit_planes(const uint8_t* p) {
    const I x = load_halves(p, p);
    return load_halves(bytes_of(bits<first, mask>(x)).v, bytes_of(bits<second, mask>(x)).v);
}
// The low nibbles of 16 bytes of a, the high ones, and the same of b.
HY3_INLINE I nibbles_by_16(const uint8_t* a, const uint8_t* b) {
    Bytes out;
    for (int i = 0; i < 16; i++) {
        out.v[i] = a[i] & 15;
        out.v[16 + i] = a[i] >> 4;
        out.v[32 + i] = b[i] & 15;
        out.v[48 + i] = b[i] >> 4;
    }
    return load_bytes(out.v);
}
HY3_INLINE I either(I a, I b) {
    Bytes x = bytes_of(a);
    const Bytes y = bytes_of(b);
    for (int i = 0; i < 64; i++) x.v[i] |= y.v[i];
    return load_bytes(x.v);
}
// `value` in the bytes whose bit is set, zero in the others.
HY3_INLINE I bytes_where(uint64_t set, int value) {
    Bytes x;
    for (int i = 0; i < 64; i++) x.v[i] = static_cast<uint8_t>((set >> i & 1u) != 0 ? value : 0);
    return load_bytes(x.v);
}
// `value` in the bytes whose chosen bit is set.
HY3_INLINE I bytes_where(uint32_t word, const BitChoice& choice, int value) {
    Bytes x;
    for (int i = 0; i < 64; i++)
        x.v[i] = static_cast<uint8_t>((word >> (8 * choice.byte[i]) & choice.bit[i]) != 0 ? value : 0);
    return load_bytes(x.v);
}
// offset + x, or offset - x in the bytes whose bit is set, of the eight bytes of `minus`.
HY3_INLINE I signed_bytes(I x, const uint8_t* minus, int offset) {
    Bytes out = bytes_of(x);
    for (int i = 0; i < 64; i++)
        out.v[i] =
            static_cast<uint8_t>((minus[i / 8] >> i % 8 & 1) != 0 ? offset - out.v[i] : offset + out.v[i]);
    return load_bytes(out.v);
}
// A table of 16 bytes at each byte of `index` (0..15).
HY3_INLINE I lookup_16(const void* table, I index) {
    uint8_t values[16];
    __builtin_memcpy(values, table, 16);
    Bytes x = bytes_of(index);
    for (uint8_t& byte : x.v) byte = values[byte];
    return load_bytes(x.v);
}
// Sixteen numbers: a byte each, and above it a field of `width` bits; eight fields of `first`, the lowest
// first, then eight of `second`.
template <int width>
HY3_INLINE void store_indices(uint16_t* to, const uint8_t* low, uint32_t first, uint32_t second) {
    for (int i = 0; i < 16; i++) {
        const uint32_t field = (i < 8 ? first : second) >> (width * (i % 8)) & ((1u << width) - 1u);
        to[i] = static_cast<uint16_t>(low[i] | field << 8);
    }
}
// Four entries and four more of a grid of eight bytes an entry. Of each index the lowest `bits` bits count.
template <int bits = 16, typename Grid, typename Index>
HY3_INLINE I grid_of_8(const Grid* grid, const Index* low, const Index* high) {
    const auto entry = [&](Index index) { return grid[index & ((1u << bits) - 1u)]; };
    Bytes x;
    for (int i = 0; i < 4; i++) {
        __builtin_memcpy(x.v + 8 * i, entry(low[i]), 8);
        __builtin_memcpy(x.v + 32 + 8 * i, entry(high[i]), 8);
    }
    return load_bytes(x.v);
}
// Sixteen entries of a grid of four bytes an entry.
template <typename Grid, typename Index>
HY3_INLINE I grid_of_4(const Grid* grid, const Index* index) {
    Bytes x;
    for (int i = 0; i < 16; i++) __builtin_memcpy(x.v + 4 * i, grid[index[i]], 4);
    return load_bytes(x.v);
}
// Words 1, 3, ..., 15: 32 bytes.
HY3_INLINE void store_odd_words(void* to, I x) {
    uint32_t words[16], chosen[8];
    store_bytes(words, x);
    for (int i = 0; i < 8; i++) chosen[i] = words[2 * i + 1];
    __builtin_memcpy(to, chosen, sizeof chosen);
}
// The low byte of every 16 bits: 32 bytes.
HY3_INLINE void store_low_bytes(uint8_t* to, I x) {
    const Bytes bytes = bytes_of(x);
    for (int i = 0; i < 32; i++) to[i] = bytes.v[2 * i];
}
// float16 in the low half of each word.
HY3_INLINE F low_half_to_float(I words) {
    const Bytes x = bytes_of(words);
    uint16_t halves[16];
    for (int i = 0; i < 16; i++) __builtin_memcpy(halves + i, x.v + 4 * i, 2);
    return load_f16(halves);
}
// Signed byte `at` of each word.
template <int at>
HY3_INLINE F byte_to_float(I words) {
    const Bytes x = bytes_of(words);
    float out[16];
    for (int i = 0; i < 16; i++) out[i] = static_cast<float>(static_cast<int8_t>(x.v[4 * i + at]));
    return load(out);
}
