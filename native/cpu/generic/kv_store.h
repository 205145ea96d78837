// Rows of a head into the key/value cache, quantized where its type says so. Where each element goes is in
// core/kv_cache.h.

template <typename T>
HY3_INLINE void put(std::byte* to, T value) {
    __builtin_memcpy(to, &value, sizeof value);
}

template <bool keys>
HY3_INLINE std::byte* place(const KvLayout& layout, std::byte* head, int p, int d) {
    const auto position = static_cast<size_t>(p), column = static_cast<size_t>(d);
    return head + (keys ? layout.key_at(position, column) : layout.value_at(position, column));
}
HY3_INLINE std::byte* scale_place(const KvLayout& layout, std::byte* head, int p, int d) {
    return head + layout.scale_at(static_cast<size_t>(p), static_cast<size_t>(d));
}

// int8 codes, with the scale max|x| / 127.
template <bool keys>
HY3_INLINE void store_q8(const KvLayout& layout, int p, const float* x, std::byte* head) {
    const float largest = largest_magnitude(x, layout.head_dim);
    const bool usable = can_scale(largest);
    put(scale_place(layout, head, p, 0), usable ? largest / 127.0f : scale_of_unscalable(largest));
    const F inverse = set1(usable ? 127.0f / largest : 0.0f);
    for (int d = 0; d < layout.head_dim; d += 16) {
        int8_t codes[16] = {};
        if (usable) store_int8(codes, round_to_int(mul(load(x + d), inverse)));
        for (int i = 0; i < 16; i++)
            put(place<keys>(layout, head, p, d + i),
                static_cast<uint8_t>(codes[i] + (keys ? kKeyOffsetQ8 : 0)));
    }
}

// Codes 0..15 of 32 columns and their scale as float16: all levels are spent evenly on both signs. The codes
// are of the scale as it is kept.
HY3_INLINE uint16_t quantize_q4(const float* x, int8_t* codes) {
    const float largest = largest_magnitude(x, kKvGroup);
    uint16_t halves[16];
    store_f16(halves, set1(largest / kMiddleQ4));
    const float scale = half_to_float(halves[0]);
    if (!(scale > 0.0f && scale <= 65504.0f)) {  // nearly nothing, or more than float16 holds
        for (int d = 0; d < kKvGroup; d++) codes[d] = 0;
        return largest < 1.0f ? uint16_t{0} : uint16_t{0x7e00};  // NaN
    }
    const F inverse = set1(1.0f / scale);
    for (int d = 0; d < kKvGroup; d += 16) {
        const F code = fma(load(x + d), inverse, set1(kMiddleQ4));
        store_int8(codes + d, round_to_int(smaller(larger(code, set1(0.0f)), set1(15.0f))));
    }
    return halves[0];
}

template <bool keys>
HY3_INLINE void store_q4(const KvLayout& layout, int p, const float* x, std::byte* head) {
    constexpr int nibbles = keys ? KvLayout::key_nibbles : KvLayout::value_nibbles;
    for (int first = 0; first < layout.head_dim; first += kKvGroup) {
        int8_t codes[kKvGroup];
        put(scale_place(layout, head, p, first), quantize_q4(x + first, codes));
        for (int d = 0; d < kKvGroup; d++)
            if (d / nibbles % 2 == 0)
                put(place<keys>(layout, head, p, first + d),
                    static_cast<uint8_t>(codes[d] | codes[d + nibbles] << 4));
    }
}

template <bool keys>
static void store_row(const KvLayout& in, int p, const float* x, std::byte* head) {
    const KvLayout layout = in;  // a copy that no store through `head` can change
    switch (layout.type) {
        case KvType::f32:
            for (int d = 0; d < layout.head_dim; d++) put(place<keys>(layout, head, p, d), x[d]);
            break;
        case KvType::f16:
            for (int d = 0; d < layout.head_dim; d += 16) {
                uint16_t halves[16];
                store_f16(halves, load(x + d));
                for (int i = 0; i < 16; i++) put(place<keys>(layout, head, p, d + i), halves[i]);
            }
            break;
        case KvType::q8:
            store_q8<keys>(layout, p, x, head);
            break;
        case KvType::q4:
            store_q4<keys>(layout, p, x, head);
            break;
    }
}
