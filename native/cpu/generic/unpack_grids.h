// The codebook formats of the IQ family: u from grids of eight or four codes (quant/codebooks.h). Included by
// unpack.h.

// 2 x + 1 of each byte: the scales of all these formats are odd.
HY3_INLINE I odd(I x) {
    return add_bytes(add_bytes(x, x), set_bytes(1));
}

// Signs are stored as indices of seven bits; the eighth makes the number of minuses even.
HY3_INLINE I with_eighth_sign(I indices) {
    alignas(16) static constexpr uint8_t odd_ones[16] = {0,    0x80, 0x80, 0,    0x80, 0,    0,    0x80,
                                                         0x80, 0,    0,    0x80, 0,    0x80, 0x80, 0};
    const I low = lookup_16(odd_ones, bits<0, kLowNibbles>(indices));
    const I high = lookup_16(odd_ones, bits<4, 0x07070707>(indices));
    return add_bytes(add_bytes(indices, low), high);
}
// Four indices in the low 28 bits of each word.
HY3_INLINE I packed_signs(I words) {
    const I low = either(bits<0, 0x7f>(words), bits<-1, 0x7f00>(words));
    return with_eighth_sign(either(low, either(bits<-2, 0x7f0000>(words), bits<-3, 0x7f000000>(words))));
}
// The float16 number that all these blocks but IQ1_M begin with.
HY3_INLINE F first_half(const BlockRows& b, float unit) {
    I head[4];
    BlockRows::words(b, 0, head);
    return mul(low_half_to_float(head[0]), set1(unit));
}
// A scale in the four bits on top of a word.
HY3_INLINE void put_top(I word, F d, float* out) {
    store(out, mul(d, byte_to_float<3>(odd(bits<4, 0x0f000000>(word)))));
}
// A nibble a group, the low one first.
HY3_INLINE void put_eight(I nibbles, F d, float* out) {
    put_four<2>(odd(bits<0, kLowNibbles>(nibbles)), d, out);
    put_four<2>(odd(bits<4, kLowNibbles>(nibbles)), d, out + kPanel);
}

// The scales of IQ2_XS and IQ2_S: a nibble a group, in the last eight bytes of a block.
HY3_INLINE void put_sixteen(const BlockRows& b, int64_t block_bytes, float* out) {
    const F d = first_half(b, 0.125f);
    I end[4];
    BlockRows::words(b, block_bytes - 16, end);
    put_eight(end[2], d, out);
    put_eight(end[3], d, out + 8 * kPanel);
}

// Sixteen grid indices: a byte each, and above it a field of `width` bits, eight of each of two words.
template <int width>
struct Indices {
    alignas(32) uint16_t v[16];
    [[gnu::always_inline]] Indices(const uint8_t* low, uint32_t first, uint32_t second) {
        store_indices<width>(v, low, first, second);
    }
    // The entries of eight of them, of the first or the second word.
    template <typename Grid>
    [[gnu::always_inline]] I of(const Grid* grid, int word) const {
        return grid_of_8(grid, v + 8 * word, v + 8 * word + 4);
    }
};

struct UnpackIQ2_XXS : Super<BlockIQ2_XXS, 32> {
    static constexpr int offset = 64;
    // Pairs of words: four grid indices, four sign indices with a scale.
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        alignas(32) uint8_t signs[32];
        store_odd_words(signs, packed_signs(load_bytes(b.qs)));
        const auto* pairs = reinterpret_cast<const uint8_t*>(b.qs);
        for (int i = 0; i < 4; i++) {
            const I grid = grid_of_8(iq2xxs_grid, pairs + 16 * i, pairs + 16 * i + 8);
            store_bytes(u + 64 * i, signed_bytes(grid, signs + 8 * i, offset));
        }
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        const F d = first_half(b, 0.125f);
        for (int i = 0; i < 4; i++) {
            I pairs[4];
            BlockRows::words(b, offsetof(Block, qs) + 16 * i, pairs);
            put_top(pairs[1], d, scale + 2 * i * kPanel);
            put_top(pairs[3], d, scale + (2 * i + 1) * kPanel);
        }
    }
};

struct UnpackIQ2_XS : Super<BlockIQ2_XS, 16> {
    static constexpr int offset = 64;
    // Numbers of 16 bits: nine of the grid index, seven of the sign index.
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        alignas(32) uint8_t signs[32];
        store_low_bytes(signs, with_eighth_sign(bits<9, 0x007f007f>(load_bytes(b.qs))));
        for (int i = 0; i < 4; i++) {
            const I grid = grid_of_8<9>(iq2xs_grid, b.qs + 8 * i, b.qs + 8 * i + 4);
            store_bytes(u + 64 * i, signed_bytes(grid, signs + 8 * i, offset));
        }
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) { put_sixteen(b, sizeof(Block), scale); }
};

struct UnpackIQ2_S : Super<BlockIQ2_S, 16> {
    static constexpr int offset = 64;
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        for (int i = 0; i < 4; i += 2) {
            const uint32_t high = read_u32(b.qh + 2 * i);
            const Indices<2> index(b.qs + 8 * i, high & 0xffffu, high >> 16);
            for (int half = 0; half < 2; half++) {
                const I grid = index.of(iq2s_grid, half);
                store_bytes(u + 64 * (i + half), signed_bytes(grid, b.signs + 8 * (i + half), offset));
            }
        }
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) { put_sixteen(b, sizeof(Block), scale); }
};

struct UnpackIQ3_XXS : Super<BlockIQ3_XXS, 32> {
    static constexpr int offset = 64;
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        alignas(64) uint8_t signs[64];
        store_bytes(signs, packed_signs(load_halves(b.gas, b.gas)));
        for (int i = 0; i < 4; i++) {
            const I grid = grid_of_4(iq3xxs_grid, b.qs + 16 * i);
            store_bytes(u + 64 * i, signed_bytes(grid, signs + 8 * i, offset));
        }
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        const F d = first_half(b, 0.25f);
        for (int i = 0; i < 2; i++) {
            I words[4];
            BlockRows::words(b, offsetof(Block, gas) + 16 * i, words);
            for (int j = 0; j < 4; j++) put_top(words[j], d, scale + (4 * i + j) * kPanel);
        }
    }
};

struct UnpackIQ3_S : Super<BlockIQ3_S, 32> {
    static constexpr int code_bits = 5;
    static constexpr int offset = 16;
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        for (int i = 0; i < 4; i++) {
            const Indices<1> index(b.qs + 16 * i, b.qh[2 * i], b.qh[2 * i + 1]);
            store_bytes(u + 64 * i, signed_bytes(grid_of_4(iq3s_grid, index.v), b.signs + 8 * i, offset));
        }
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        I end[4];
        BlockRows::words(b, sizeof(Block) - 16, end);
        put_eight(end[3], first_half(b, 1.0f), scale);
    }
};

// The IQ1 formats shift codes -1, 0, 1 by delta = +-1/8: in eighths that is 8 * code +- 1. Their grid has +
// 1; this is added where delta is negative.
constexpr int kOtherDelta = -2;
// Bits first, first + step, ... of a word, each for as many of 64 bytes.
template <int first, int step>
struct EveryBit : BitChoice {
    constexpr EveryBit() : BitChoice() {
        for (int i = 0; i < 64; i++) {
            const int at = first + step * (i * 32 / step / 64);
            byte[i] = static_cast<uint8_t>(at / 8);
            bit[i] = static_cast<uint8_t>(1 << at % 8);
        }
    }
};

struct UnpackIQ1_S : Super<BlockIQ1_S, 32> {
    static constexpr int code_bits = 5;
    static constexpr int offset = 16;
    static constexpr EveryBit<15, 16> deltas{};
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        for (int i = 0; i < 4; i += 2) {
            // Two groups a word: four times 3 bits of the index, a scale, the sign of delta.
            const uint64_t words = read_u64(reinterpret_cast<const uint8_t*>(b.qh) + 4 * i);
            const Indices<3> index(b.qs + 8 * i, index_bits(static_cast<uint32_t>(words)),
                                   index_bits(static_cast<uint32_t>(words >> 32)));
            for (int half = 0; half < 2; half++) {
                const I grid = index.of(iq1s_eighths, half);
                const I minus = bytes_where(static_cast<uint32_t>(words >> 32 * half), deltas, kOtherDelta);
                store_bytes(u + 64 * (i + half), add_bytes(grid, minus));
            }
        }
    }
    HY3_INLINE uint32_t index_bits(uint32_t word) { return (word & 0xfffu) | (word >> 4 & 0xfff000u); }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        const F d = first_half(b, 0.125f);
        I words[4];
        BlockRows::words(b, offsetof(Block, qh), words);
        for (int i = 0; i < 4; i++) {
            const I scales_of_two = odd(bits<4, 0x07000700>(words[i]));
            store(scale + 2 * i * kPanel, mul(d, byte_to_float<1>(scales_of_two)));
            store(scale + (2 * i + 1) * kPanel, mul(d, byte_to_float<3>(scales_of_two)));
        }
    }
};

struct UnpackIQ1_M : Super<BlockIQ1_M, 16> {
    static constexpr int code_bits = 5;
    static constexpr int offset = 16;
    static constexpr EveryBit<3, 4> deltas{};
    HY3_INLINE void codes(const Block& b, uint8_t* u) {
        for (int i = 0; i < 4; i += 2) {
            // A nibble a code: three bits of the index, the sign of delta.
            const uint32_t words[2] = {read_u32(b.qh + 4 * i), read_u32(b.qh + 4 * i + 4)};
            const Indices<4> index(b.qs + 8 * i, words[0] & 0x77777777u, words[1] & 0x77777777u);
            for (int half = 0; half < 2; half++) {
                const I grid = index.of(iq1s_eighths, half);
                const I minus = bytes_where(words[half], deltas, kOtherDelta);
                store_bytes(u + 64 * (i + half), add_bytes(grid, minus));
            }
        }
    }
    template <int shift>
    HY3_INLINE void put_two(I word, F d, float* out) {
        store(out, mul(d, byte_to_float<0>(odd(bits<shift, 7>(word)))));
        store(out + 4 * kPanel, mul(d, byte_to_float<0>(odd(bits<shift + 16, 7>(word)))));
    }
    HY3_INLINE void scales(const BlockRows& b, float* scale, float*) {
        I end[4];  // the last two words: 16-bit numbers with four scales each and a nibble of d on top
        BlockRows::words(b, sizeof(Block) - 16, end);
        const I low = either(bits<12, 0xf>(end[2]), bits<24, 0xf0>(end[2]));
        const I high = either(bits<4, 0xf00>(end[3]), bits<16, 0xf000>(end[3]));
        const F d = mul(low_half_to_float(either(low, high)), set1(0.125f));
        for (int i = 0; i < 2; i++, scale += 8 * kPanel) {
            put_two<0>(end[2 + i], d, scale);
            put_two<3>(end[2 + i], d, scale + kPanel);
            put_two<6>(end[2 + i], d, scale + 2 * kPanel);
            put_two<9>(end[2 + i], d, scale + 3 * kPanel);
        }
    }
};
