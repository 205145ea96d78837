// Block formats brought to the form of panel.h. One struct per format:
//   Block       its storage (quant/blocks.h); elements: columns in a block
//   group       columns that share a scale: 16 or 32
//   offset      what u is shifted by to be unsigned; kWideOffset where it takes all of eight bits
//   code_bits   u is below 2^code_bits, 4 to 8; with 8 it is signed where kWideOffset is 0
//   has_bias    whether the format has minima
//   codes       u: 64 columns as a vector, of two blocks of 32 or of a quarter of a super-block; where
//   quarters
//               have much of the work in common, 256 of a super-block to memory
//   quads       if it is there: u of four rows, 16 columns a vector: 32 from column `first` on, a multiple of
//               64, and 32 from `second` on
//   scales      scale and bias of a block of 16 rows at once

HY3_INLINE uint32_t read_u32(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return word;
}
HY3_INLINE uint64_t read_u64(const uint8_t* p) {
    uint64_t word;
    __builtin_memcpy(&word, p, 8);
    return word;
}

// Blocks of 16 rows, at the same columns.
struct BlockRows {
    const uint8_t* const* rows;
    int64_t at;
    // Sixteen bytes of each, as words by row.
    HY3_INLINE void words(const BlockRows& b, int64_t offset, I out[4]) {
        transpose_words([&](int r) { return b.rows[r] + b.at + offset; }, out);
    }
    // A float16 number of each.
    HY3_INLINE F halves(const BlockRows& b, int64_t offset) { return load_f16_each(b.rows, b.at + offset); }
};

// Four rows that share a vector, 16 bytes of each.
struct FourRows {
    const uint8_t* row[4];
    HY3_INLINE I load(const FourRows& rows, int64_t at) {
        return load_quarters(rows.row[0] + at, rows.row[1] + at, rows.row[2] + at, rows.row[3] + at);
    }
};

// Where the nibbles of a column, the first of its group, are in a row.
template <typename Block>
HY3_INLINE int64_t nibbles_at(int64_t column) {
    constexpr int64_t elements = 2 * sizeof(Block::qs), bytes = sizeof(Block);
    return column / elements * bytes + static_cast<int64_t>(offsetof(Block, qs)) + column % elements / 2;
}
// quads() of formats whose 16 bytes of nibbles are 32 columns, with the codes of `code(nibbles)`.
template <typename Block, typename Code>
HY3_INLINE void nibble_quads(const FourRows& rows, int64_t first, int64_t second, I out[4], Code code) {
    const I a = FourRows::load(rows, nibbles_at<Block>(first));
    const I b = FourRows::load(rows, nibbles_at<Block>(second));
    out[0] = code(low_nibbles(a)), out[1] = code(high_nibbles(a));
    out[2] = code(low_nibbles(b)), out[3] = code(high_nibbles(b));
}

template <typename B>
struct Small {  // 32 columns, one scale
    using Block = B;
    static constexpr int elements = 32;
    static constexpr int group = 32;
    static constexpr int offset = 0;
    static constexpr int code_bits = 7;
    static constexpr bool has_bias = false;
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        store(scale, BlockRows::halves(b, offsetof(B, d)));
    }
};

template <typename B>
struct SmallWithMin : Small<B> {
    static constexpr bool has_bias = true;
    HY3_INLINE void scales(const BlockRows& b, float* scale, float* bias) {
        store(scale, BlockRows::halves(b, offsetof(B, d)));
        store(bias, BlockRows::halves(b, offsetof(B, m)));
    }
};

struct UnpackQ4_0 : Small<BlockQ4_0> {
    static constexpr int code_bits = 4;
    static constexpr int offset = 8;
    HY3_INLINE I codes(const Block& a, const Block& b) { return nibbles_by_16(a.qs, b.qs); }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t second, I out[4]) {
        nibble_quads<BlockQ4_0>(rows, first, second, out, [](I x) { return x; });
    }
};

struct UnpackQ4_1 : SmallWithMin<BlockQ4_1> {
    static constexpr int code_bits = 4;
    HY3_INLINE I codes(const BlockQ4_1& a, const BlockQ4_1& b) { return nibbles_by_16(a.qs, b.qs); }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t second, I out[4]) {
        nibble_quads<BlockQ4_1>(rows, first, second, out, [](I x) { return x; });
    }
};

template <typename Block>
HY3_INLINE I five_bits(const Block& a, const Block& b) {
    const uint64_t high = read_u32(a.qh) | static_cast<uint64_t>(read_u32(b.qh)) << 32;
    return either(nibbles_by_16(a.qs, b.qs), bytes_where(high, 16));
}

struct UnpackQ5_0 : Small<BlockQ5_0> {
    static constexpr int code_bits = 5;
    static constexpr int offset = 16;
    HY3_INLINE I codes(const Block& a, const Block& b) { return five_bits(a, b); }
};

struct UnpackQ5_1 : SmallWithMin<BlockQ5_1> {
    static constexpr int code_bits = 5;
    HY3_INLINE I codes(const BlockQ5_1& a, const BlockQ5_1& b) { return five_bits(a, b); }
};

struct UnpackQ8_0 : Small<BlockQ8_0> {
    static constexpr int offset = kWideOffset;
    static constexpr int code_bits = 8;
    HY3_INLINE I codes(const Block& a, const Block& b) {
        return add_bytes(load_halves(a.qs, b.qs), set_bytes(offset));
    }
};

struct UnpackIQ4_NL : Small<BlockIQ4_NL> {
    static constexpr int offset = kWideOffset;
    static constexpr int code_bits = 8;
    HY3_INLINE I of(I nibbles) { return add_bytes(lookup_16(kvalues_iq4nl, nibbles), set_bytes(offset)); }
    HY3_INLINE I codes(const Block& a, const Block& b) { return of(nibbles_by_16(a.qs, b.qs)); }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t second, I out[4]) {
        nibble_quads<Block>(rows, first, second, out, [](I x) { return of(x); });
    }
};

struct UnpackMXFP4 : Small<BlockMXFP4> {
    static constexpr int code_bits = 5;
    static constexpr int offset = 16;
    HY3_INLINE I of(I nibbles) { return add_bytes(lookup_16(kvalues_mxfp4, nibbles), set_bytes(offset)); }
    HY3_INLINE I codes(const Block& a, const Block& b) { return of(nibbles_by_16(a.qs, b.qs)); }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t second, I out[4]) {
        nibble_quads<Block>(rows, first, second, out, [](I x) { return of(x); });
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        for (int r = 0; r < kPanel; r++) {
            const uint8_t e = b.rows[r][b.at + static_cast<int64_t>(offsetof(Block, e))];
            // 2^(e - 127) / 2; subnormal for the two smallest.
            const uint32_t bits = e < 2 ? 0x00200000u << e : static_cast<uint32_t>(e - 1) << 23;
            __builtin_memcpy(scale + r, &bits, 4);
        }
    }
};

HY3_INLINE F high_half_to_float(I words) {
    return low_half_to_float(bits<16, 0xffff>(words));
}

// 256 columns. Scales are a float16 number times a signed integer by group: exact products.
template <typename B, int group_columns>
struct Super {
    using Block = B;
    static constexpr int elements = 256;
    static constexpr int group = group_columns;
    static constexpr int offset = 0;
    static constexpr int code_bits = 7;
    static constexpr bool has_bias = false;
};

HY3_INLINE F negated(F x) {
    return mul(x, set1(-1.0f));
}

// The scales of four groups from the signed bytes of a word; those of group 0, step, 2 step, 3 step from
// `out`.
template <int step = 1>
HY3_INLINE void put_four(I bytes, F factor, float* out) {
    store(out, mul(factor, byte_to_float<0>(bytes)));
    store(out + step * kPanel, mul(factor, byte_to_float<1>(bytes)));
    store(out + 2 * step * kPanel, mul(factor, byte_to_float<2>(bytes)));
    store(out + 3 * step * kPanel, mul(factor, byte_to_float<3>(bytes)));
}

constexpr uint32_t kLowNibbles = 0x0f0f0f0f;

struct UnpackQ2_K : Super<BlockQ2_K, 16> {
    static constexpr int code_bits = 4;
    static constexpr bool has_bias = true;
    template <int quarter>
    HY3_INLINE I codes(const Block& b) {
        constexpr int bit = quarter % 2 * 4;
        return bit_planes<bit, bit + 2, 0x03030303>(b.qs + quarter / 2 * 32);
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float* bias) {
        I packed[4], end[4];
        BlockRows::words(b, offsetof(Block, scales), packed);
        BlockRows::words(b, sizeof(Block) - 16, end);
        const F d = low_half_to_float(end[3]), dmin = negated(high_half_to_float(end[3]));
        for (int i = 0; i < 4; i++) {
            put_four(bits<0, kLowNibbles>(packed[i]), d, scale + 4 * i * kPanel);
            put_four(bits<4, kLowNibbles>(packed[i]), dmin, bias + 4 * i * kPanel);
        }
    }
};

struct UnpackQ3_K : Super<BlockQ3_K, 16> {
    static constexpr int code_bits = 4;
    static constexpr int offset = 4;
    template <int quarter>
    HY3_INLINE I codes(const Block& b) {
        constexpr int low = quarter % 2 * 4, high = 2 * quarter - 2;
        return either(bit_planes<low, low + 2, 0x03030303>(b.qs + quarter / 2 * 32),
                      bit_planes<high, high + 1, 0x04040404>(b.hmask));
    }
    template <int low, int high>
    HY3_INLINE I four(I lows, I highs) {
        const I codes = either(bits<low, kLowNibbles>(lows), bits<high, 0x30303030>(highs));
        return add_bytes(codes, set_bytes(-32));
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        I end[4], packed[3];  // the block's last 16 bytes begin two bytes before the 12 of the scales
        BlockRows::words(b, sizeof(Block) - 16, end);
        for (int i = 0; i < 3; i++)
            packed[i] = either(bits<16, 0xffff>(end[i]), bits<-16, 0xffff0000>(end[i + 1]));
        const F d = high_half_to_float(end[3]);
        put_four(four<0, -4>(packed[0], packed[2]), d, scale);
        put_four(four<0, -2>(packed[1], packed[2]), d, scale + 4 * kPanel);
        put_four(four<4, 0>(packed[0], packed[2]), d, scale + 8 * kPanel);
        put_four(four<4, 2>(packed[1], packed[2]), d, scale + 12 * kPanel);
    }
};

template <typename B>
struct SixBitScales : Super<B, 32> {  // Q4_K and Q5_K: d, dmin, then 12 bytes
    static constexpr bool has_bias = true;
    HY3_INLINE I upper(I low_bits, I high_bits) { return either(low_bits, bits<2, 0x30303030>(high_bits)); }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float* bias) {
        I head[4];
        BlockRows::words(b, 0, head);
        const F d = low_half_to_float(head[0]), dmin = negated(high_half_to_float(head[0]));
        put_four(bits<0, 0x3f3f3f3f>(head[1]), d, scale);
        put_four(upper(bits<0, kLowNibbles>(head[3]), head[1]), d, scale + 4 * kPanel);
        put_four(bits<0, 0x3f3f3f3f>(head[2]), dmin, bias);
        put_four(upper(bits<4, kLowNibbles>(head[3]), head[2]), dmin, bias + 4 * kPanel);
    }
};

struct UnpackQ4_K : SixBitScales<BlockQ4_K> {
    static constexpr int code_bits = 4;
    template <int quarter>
    HY3_INLINE I codes(const BlockQ4_K& b) {
        return bit_planes<0, 4, kLowNibbles>(b.qs + 32 * quarter);
    }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t, I out[4]) {
        const int64_t at = nibbles_at<Block>(first);
        const I a = FourRows::load(rows, at), b = FourRows::load(rows, at + 16);
        out[0] = low_nibbles(a), out[1] = low_nibbles(b), out[2] = high_nibbles(a), out[3] = high_nibbles(b);
    }
};

struct UnpackQ5_K : SixBitScales<BlockQ5_K> {
    static constexpr int code_bits = 5;
    template <int quarter>
    HY3_INLINE I codes(const BlockQ5_K& b) {
        constexpr int high = 2 * quarter - 4;
        return either(bit_planes<0, 4, kLowNibbles>(b.qs + 32 * quarter),
                      bit_planes<high, high + 1, 0x10101010>(b.qh));
    }
};

struct UnpackQ6_K : Super<BlockQ6_K, 16> {
    static constexpr int code_bits = 6;
    static constexpr int offset = 32;
    template <int quarter>
    HY3_INLINE I codes(const Block& b) {
        constexpr int low = quarter % 2 * 4, high = low - 4;
        return either(bits<low, kLowNibbles>(load_bytes(b.ql + quarter / 2 * 64)),
                      bit_planes<high, high + 2, 0x30303030>(b.qh + quarter / 2 * 32));
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        I packed[4], end[4];
        BlockRows::words(b, offsetof(Block, scales), packed);
        BlockRows::words(b, sizeof(Block) - 16, end);
        const F d = high_half_to_float(end[3]);
        for (int i = 0; i < 4; i++) put_four(packed[i], d, scale + 4 * i * kPanel);
    }
};

struct UnpackIQ4_XS : Super<BlockIQ4_XS, 32> {
    static constexpr int offset = kWideOffset;
    static constexpr int code_bits = 8;
    template <int quarter>
    HY3_INLINE I codes(const Block& b) {
        return UnpackIQ4_NL::of(nibbles_by_16(b.qs + 32 * quarter, b.qs + 32 * quarter + 16));
    }
    HY3_INLINE void quads(const FourRows& rows, int64_t first, int64_t second, I out[4]) {
        nibble_quads<Block>(rows, first, second, out, [](I x) { return UnpackIQ4_NL::of(x); });
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        I head[4];  // d, scales_h; scales_l: the low bits of groups 2i, 2i + 1 in byte i
        BlockRows::words(b, 0, head);
        const F d = low_half_to_float(head[0]);
        // The high bits of groups 2i, 2i + 1 to the low nibble of byte i.
        const I spread = either(either(bits<16, 0x0000000f>(head[0]), bits<12, 0x00000f00>(head[0])),
                                either(bits<8, 0x000f0000>(head[0]), bits<4, 0x0f000000>(head[0])));
        const I even = either(bits<0, kLowNibbles>(head[1]), bits<-4, 0x30303030>(spread));
        const I odd = either(bits<4, kLowNibbles>(head[1]), bits<-2, 0x30303030>(spread));
        put_four<2>(add_bytes(even, set_bytes(-32)), d, scale);
        put_four<2>(add_bytes(odd, set_bytes(-32)), d, scale + kPanel);
    }
};

#include "cpu/generic/unpack_grids.h"
