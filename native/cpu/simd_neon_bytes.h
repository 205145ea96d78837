// The vector vocabulary on NEON, continued: operations on bytes. Included by simd_neon.h; what each means is
// in simd_scalar_bytes.h.

HY3_INLINE uint8x16_t bytes_of(int32x4_t words) {
    return vreinterpretq_u8_s32(words);
}
HY3_INLINE int32x4_t words_of(uint8x16_t bytes) {
    return vreinterpretq_s32_u8(bytes);
}
HY3_INLINE uint8x16_t load_16(const void* p) {
    return vld1q_u8(static_cast<const uint8_t*>(p));
}
// A vector of what `quarter` makes of each quarter, as bytes.
template <typename Quarter>
HY3_INLINE I by_byte_quarter(Quarter quarter) {
    return by_quarter<I>([&](int j) { return words_of(quarter(j)); });
}

HY3_INLINE I load_quarters(const void* a, const void* b, const void* c, const void* d) {
    return {{words_of(load_16(a)), words_of(load_16(b)), words_of(load_16(c)), words_of(load_16(d))}};
}
HY3_INLINE I load_halves(const void* a, const void* b) {
    return load_quarters(a, static_cast<const uint8_t*>(a) + 16, b, static_cast<const uint8_t*>(b) + 16);
}
HY3_INLINE I set_bytes(int value) {
    return by_byte_quarter([&](int) { return vdupq_n_u8(static_cast<uint8_t>(value)); });
}
HY3_INLINE I add_bytes(I a, I b) {
    return by_byte_quarter([&](int j) { return vaddq_u8(bytes_of(a.q[j]), bytes_of(b.q[j])); });
}
HY3_INLINE I either(I a, I b) {
    return by_quarter<I>([&](int j) { return vorrq_s32(a.q[j], b.q[j]); });
}

// What is left of `ones` bits after a shift to the right (left, if negative).
constexpr uint32_t shifted(uint32_t ones, int right) {
    return right >= 0 ? ones >> right : ones << -right & ones;
}
// A shift of bytes or words needs no mask that hides nothing else than the shift itself.
template <int right, uint32_t mask>
HY3_INLINE int32x4_t bits_quarter(int32x4_t x) {
    if constexpr (right != 0 && mask == shifted(0xff, right) * 0x01010101) {
        if constexpr (right > 0) return words_of(vshrq_n_u8(bytes_of(x), right));
        return words_of(vshlq_n_u8(bytes_of(x), right < 0 ? -right : 0));
    }
    uint32x4_t words = vreinterpretq_u32_s32(x);
    if constexpr (right > 0) words = vshrq_n_u32(words, right);
    if constexpr (right < 0) words = vshlq_n_u32(words, -right);
    if constexpr (mask != shifted(0xffffffff, right)) words = vandq_u32(words, vdupq_n_u32(mask));
    return vreinterpretq_s32_u32(words);
}
template <int right, uint32_t mask>
HY3_INLINE I bits(I x) {
    return by_quarter<I>([&](int j) { return bits_quarter<right, mask>(x.q[j]); });
}
template <int first, int second, uint32_t mask>
HY3_INLINE I bit_planes(const uint8_t* p) {
    const int32x4_t a = words_of(load_16(p)), b = words_of(load_16(p + 16));
    return {{bits_quarter<first, mask>(a), bits_quarter<first, mask>(b), bits_quarter<second, mask>(a),
             bits_quarter<second, mask>(b)}};
}
HY3_INLINE I nibbles_by_16(const uint8_t* a, const uint8_t* b) {
    const I twice = load_quarters(a, a, b, b);
    const I low = low_nibbles(twice), high = high_nibbles(twice);
    return {{low.q[0], high.q[1], low.q[2], high.q[3]}};
}

// 0xff in the bytes whose bit, of the byte of the word that `byte` says, is set.
HY3_INLINE uint8x16_t chosen_bits(uint8x16_t word, uint8x16_t byte, uint8x16_t bit) {
    return vtstq_u8(vqtbl1q_u8(word, byte), bit);
}
// 0xff in the bytes of quarter j whose bit is set.
HY3_INLINE uint8x16_t spread_bits(uint64_t set, int j) {
    const uint8x16_t byte_of_each =
        vcombine_u8(vdup_n_u8(static_cast<uint8_t>(2 * j)), vdup_n_u8(static_cast<uint8_t>(2 * j + 1)));
    return chosen_bits(vreinterpretq_u8_u64(vdupq_n_u64(set)), byte_of_each,
                       vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)));
}
HY3_INLINE I bytes_where(uint64_t set, int value) {
    const uint8x16_t x = vdupq_n_u8(static_cast<uint8_t>(value));
    return by_byte_quarter([&](int j) { return vandq_u8(spread_bits(set, j), x); });
}
HY3_INLINE I bytes_where(uint32_t word, const BitChoice& choice, int value) {
    const uint8x16_t bytes = vreinterpretq_u8_u32(vdupq_n_u32(word));
    const uint8x16_t x = vdupq_n_u8(static_cast<uint8_t>(value));
    return by_byte_quarter([&](int j) {
        return vandq_u8(chosen_bits(bytes, load_16(choice.byte + 16 * j), load_16(choice.bit + 16 * j)), x);
    });
}
HY3_INLINE I signed_bytes(I x, const uint8_t* minus, int offset) {
    const uint8x16_t shift = vdupq_n_u8(static_cast<uint8_t>(offset));
    uint64_t set;
    __builtin_memcpy(&set, minus, 8);
    return by_byte_quarter([&](int j) {
        const uint8x16_t bytes = bytes_of(x.q[j]);
        return vbslq_u8(spread_bits(set, j), vsubq_u8(shift, bytes), vaddq_u8(shift, bytes));
    });
}

HY3_INLINE I lookup_16(const void* table, I index) {
    const uint8x16_t values = load_16(table);
    return by_byte_quarter([&](int j) { return vqtbl1q_u8(values, bytes_of(index.q[j])); });
}
template <int bits = 16, typename Grid, typename Index>
HY3_INLINE I grid_of_8(const Grid* grid, const Index* low, const Index* high) {
    const auto entry = [&](int i) {
        const Index index = i < 4 ? low[i] : high[i - 4];
        return vld1_u8(reinterpret_cast<const uint8_t*>(grid[index & ((1u << bits) - 1u)]));
    };
    return by_byte_quarter([&](int j) { return vcombine_u8(entry(2 * j), entry(2 * j + 1)); });
}
template <typename Grid, typename Index>
HY3_INLINE I grid_of_4(const Grid* grid, const Index* index) {
    return by_quarter<I>([&](int j) {
        const auto entry = [&](int i) { return reinterpret_cast<const int32_t*>(grid[index[4 * j + i]]); };
        int32x4_t x = vld1q_dup_s32(entry(0));
        x = vld1q_lane_s32(entry(1), x, 1);
        x = vld1q_lane_s32(entry(2), x, 2);
        return vld1q_lane_s32(entry(3), x, 3);
    });
}
HY3_INLINE void store_odd_words(void* to, I x) {
    auto* out = static_cast<uint8_t*>(to);
    for (int j = 0; j < 2; j++) store_quarter(out + 16 * j, vuzp2q_s32(x.q[2 * j], x.q[2 * j + 1]));
}

HY3_INLINE void store_low_bytes(uint8_t* to, I x) {
    for (int j = 0; j < 2; j++)
        vst1q_u8(to + 16 * j, vuzp1q_u8(bytes_of(x.q[2 * j]), bytes_of(x.q[2 * j + 1])));
}
// A field and what lies around it go to a lane of 16 bits, and are shifted there.
template <int width>
struct FieldLanes {
    uint8_t bytes[16];  // of eight fields: those that each begins in
    int16_t counts[8];

    constexpr FieldLanes() : bytes(), counts() {
        for (int i = 0; i < 8; i++) {
            bytes[2 * i] = static_cast<uint8_t>(width * i / 8);
            bytes[2 * i + 1] = static_cast<uint8_t>(width * i / 8 + 1);
            counts[i] = static_cast<int16_t>(-(width * i % 8));
        }
    }
};
template <int width>
HY3_INLINE void store_indices(uint16_t* to, const uint8_t* low, uint32_t first, uint32_t second) {
    static constexpr FieldLanes<width> lanes{};
    const uint8x16_t bytes = vld1q_u8(lanes.bytes);
    const int16x8_t counts = vld1q_s16(lanes.counts);
    const auto eight = [&](uint32_t word, uint8x8_t lows) {
        const uint16x8_t around =
            vreinterpretq_u16_u8(vqtbl1q_u8(vreinterpretq_u8_u32(vdupq_n_u32(word)), bytes));
        const uint16x8_t fields = vandq_u16(vshlq_u16(around, counts), vdupq_n_u16((1u << width) - 1u));
        return vorrq_u16(vmovl_u8(lows), vshlq_n_u16(fields, 8));
    };
    vst1q_u16(to, eight(first, vld1_u8(low)));
    vst1q_u16(to + 8, eight(second, vld1_u8(low + 8)));
}
HY3_INLINE F low_half_to_float(I words) {
    return by_quarter<F>([&](int j) { return vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(words.q[j]))); });
}
template <int at>
HY3_INLINE F byte_to_float(I words) {
    return by_quarter<F>([&](int j) {
        int32x4_t x = words.q[j];
        if constexpr (at < 3) x = vshlq_n_s32(x, 24 - 8 * at);
        return vcvtq_f32_s32(vshrq_n_s32(x, 24));
    });
}
