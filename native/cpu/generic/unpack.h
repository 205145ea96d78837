// Block formats brought to one form that the product kernels compute with: bytes u, and per group of columns
// a scale and (for some formats) a bias, so that   w = scale * (u - offset) + bias.
//
// One struct per format:
//   Block       its storage (quant/blocks.h); elements: columns in a block
//   group       columns that share a scale: 16 or 32
//   offset      what u is shifted by to be unsigned; kWideOffset where it takes all of eight bits
//   wide        whether u can exceed 127
//   has_bias    whether the format has minima; if not, unpack leaves bias alone
//   Scale       float, or uint16_t where the block has just a float16 scale, to be converted 16 at a time
//   unpack      one block: u[elements], and scale and bias of each group
// Plain loops over constant shifts: compiled per instruction set, they become vector code. `restrict` spares
// them the checks whether the output overlaps the block.

HY3_INLINE uint32_t read_u32(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return word;
}

template <typename B>
struct Small {  // 32 columns, one scale
    using Block = B;
    using Scale = uint16_t;
    static constexpr int elements = 32;
    static constexpr int group = 32;
    static constexpr int offset = 0;
    static constexpr bool wide = false;
    static constexpr bool has_bias = false;
};

HY3_INLINE void low_high_nibbles(const uint8_t* qs, uint8_t* __restrict u) {
    for (int i = 0; i < 16; i++) u[i] = qs[i] & 15;
    for (int i = 0; i < 16; i++) u[16 + i] = qs[i] >> 4;
}

struct UnpackQ4_0 : Small<BlockQ4_0> {
    static constexpr int offset = 8;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale, Scale*) {
        low_high_nibbles(b.qs, u);
        *scale = b.d;
    }
};

struct UnpackQ4_1 : Small<BlockQ4_1> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale,
                           Scale* __restrict bias) {
        low_high_nibbles(b.qs, u);
        *scale = b.d;
        *bias = b.m;
    }
};

HY3_INLINE void five_bits(const uint8_t* qs, const uint8_t* qh, uint8_t* __restrict u) {
    low_high_nibbles(qs, u);
    const uint32_t high = read_u32(qh);
    for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(u[i] | (high >> i & 1u) << 4);
}

struct UnpackQ5_0 : Small<BlockQ5_0> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale, Scale*) {
        five_bits(b.qs, b.qh, u);
        *scale = b.d;
    }
};

struct UnpackQ5_1 : Small<BlockQ5_1> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale,
                           Scale* __restrict bias) {
        five_bits(b.qs, b.qh, u);
        *scale = b.d;
        *bias = b.m;
    }
};

struct UnpackQ8_0 : Small<BlockQ8_0> {
    static constexpr int offset = kWideOffset;
    static constexpr bool wide = kWideOffset != 0;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale, Scale*) {
        for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(b.qs[i] + offset);
        *scale = b.d;
    }
};

struct UnpackIQ4_NL : Small<BlockIQ4_NL> {
    static constexpr int offset = kWideOffset;
    static constexpr bool wide = kWideOffset != 0;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, Scale* __restrict scale, Scale*) {
        lookup_nibbles(kvalues_iq4nl, offset, b.qs, u);
        *scale = b.d;
    }
};

struct UnpackMXFP4 : Small<BlockMXFP4> {
    using Scale = float;
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        lookup_nibbles(kvalues_mxfp4, offset, b.qs, u);
        // 2^(e - 127) / 2; subnormal for the two smallest.
        const uint32_t bits = b.e < 2 ? 0x00200000u << b.e : static_cast<uint32_t>(b.e - 1) << 23;
        __builtin_memcpy(scale, &bits, 4);
    }
};

template <typename B, int group_columns>
struct Super {  // 256 columns
    using Block = B;
    using Scale = float;
    static constexpr int elements = 256;
    static constexpr int group = group_columns;
    static constexpr int offset = 0;
    static constexpr bool wide = false;
    static constexpr bool has_bias = false;
};

// Two bits per column: quarter j of each half is bits 2j, 2j+1.
HY3_INLINE void two_bits(const uint8_t* qs, uint8_t* __restrict u) {
    for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 32; k++) u[128 * half + 32 * j + k] = qs[32 * half + k] >> (2 * j) & 3;
}

struct UnpackQ2_K : Super<BlockQ2_K, 16> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale,
                           float* __restrict bias) {
        two_bits(b.qs, u);
        const float d = half_to_float(b.d), m = -half_to_float(b.dmin);
        for (int i = 0; i < 2; i++) {
            uint64_t nibbles;
            __builtin_memcpy(&nibbles, b.scales + 8 * i, 8);
            scale_bytes(nibbles & 0x0f0f0f0f0f0f0f0fu, d, scale + 8 * i);
            scale_bytes(nibbles >> 4 & 0x0f0f0f0f0f0f0f0fu, m, bias + 8 * i);
        }
    }
};

struct UnpackQ3_K : Super<BlockQ3_K, 16> {
    static constexpr int offset = 4;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            const uint8_t* low = b.qs + 32 * (j >> 2);
            for (int k = 0; k < 32; k++)
                u[32 * j + k] =
                    static_cast<uint8_t>((low[k] >> (2 * (j & 3)) & 3) | (b.hmask[k] >> j & 1) << 2);
        }
        // Four bytes at a time: groups 4i..4i+3 have their low bits in a nibble of words 0 and 1, the high
        // ones in word 2.
        const uint32_t a = read_u32(b.scales), c = read_u32(b.scales + 4), high = read_u32(b.scales + 8);
        const float d = half_to_float(b.d);
        for (int i = 0; i < 2; i++) {
            const uint64_t low_bits =
                (a >> (4 * i) & 0x0f0f0f0fu) | static_cast<uint64_t>(c >> (4 * i) & 0x0f0f0f0fu) << 32;
            const uint64_t high_bits = (high >> (4 * i) & 0x03030303u) |
                                       static_cast<uint64_t>(high >> (4 * i + 2) & 0x03030303u) << 32;
            // - 32 in every byte; bit 7 set meanwhile keeps the borrow from the next one.
            const uint64_t biased = (low_bits | high_bits << 4 | 0x8080808080808080u) - 0x2020202020202020u;
            scale_bytes(biased ^ 0x8080808080808080u, d, scale + 8 * i);
        }
    }
};

// Low nibbles of 32 bytes, then high ones, four times.
HY3_INLINE void nibbles_by_32(const uint8_t* qs, uint8_t* __restrict u) {
    for (int j = 0; j < 4; j++) {
        for (int k = 0; k < 32; k++) u[64 * j + k] = qs[32 * j + k] & 15;
        for (int k = 0; k < 32; k++) u[64 * j + 32 + k] = qs[32 * j + k] >> 4;
    }
}

// The 6-bit scales and minima of Q4_K and Q5_K: eight bytes each, put together four at a time.
HY3_INLINE void six_bit_scales(const uint8_t* packed, uint16_t d, uint16_t dmin, float* __restrict scale,
                               float* __restrict bias) {
    const uint32_t a = read_u32(packed), b = read_u32(packed + 4), c = read_u32(packed + 8);
    const uint32_t low = a & 0x3f3f3f3fu, high = (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4;
    const uint32_t min_low = b & 0x3f3f3f3fu, min_high = (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4;
    scale_bytes(low | static_cast<uint64_t>(high) << 32, half_to_float(d), scale);
    scale_bytes(min_low | static_cast<uint64_t>(min_high) << 32, -half_to_float(dmin), bias);
}

struct UnpackQ4_K : Super<BlockQ4_K, 32> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale,
                           float* __restrict bias) {
        nibbles_by_32(b.qs, u);
        six_bit_scales(b.scales, b.d, b.dmin, scale, bias);
    }
};

struct UnpackQ5_K : Super<BlockQ5_K, 32> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale,
                           float* __restrict bias) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            const uint8_t* low = b.qs + 32 * (j >> 1);
            for (int k = 0; k < 32; k++)
                u[32 * j + k] =
                    static_cast<uint8_t>((low[k] >> (4 * (j & 1)) & 15) | (b.qh[k] >> j & 1) << 4);
        }
        six_bit_scales(b.scales, b.d, b.dmin, scale, bias);
    }
};

struct UnpackQ6_K : Super<BlockQ6_K, 16> {
    static constexpr int offset = 32;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        for (int half = 0; half < 2; half++)
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                const uint8_t* low = b.ql + 64 * half + 32 * (j & 1);
                const uint8_t* high = b.qh + 32 * half;
                uint8_t* to = u + 128 * half + 32 * j;
                for (int k = 0; k < 32; k++)
                    to[k] =
                        static_cast<uint8_t>((low[k] >> (4 * (j >> 1)) & 15) | (high[k] >> (2 * j) & 3) << 4);
            }
        const float d = half_to_float(b.d);
        for (int g = 0; g < 16; g++) scale[g] = d * static_cast<float>(b.scales[g]);
    }
};

struct UnpackIQ4_XS : Super<BlockIQ4_XS, 32> {
    static constexpr int offset = kWideOffset;
    static constexpr bool wide = kWideOffset != 0;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        for (int g = 0; g < 8; g++) lookup_nibbles(kvalues_iq4nl, offset, b.qs + 16 * g, u + 32 * g);
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const int s = (b.scales_l[g >> 1] >> (4 * (g & 1)) & 15) | (b.scales_h >> (2 * g) & 3) << 4;
            scale[g] = d * static_cast<float>(s - 32);
        }
    }
};

// Bytes 0xff where the bit of the index is set: sign bits spread over eight (or four) codes.
struct SignMasks {
    uint8_t bytes[256][8];
    constexpr SignMasks() : bytes() {
        for (int signs = 0; signs < 256; signs++)
            for (int i = 0; i < 8; i++) bytes[signs][i] = (signs >> i & 1) != 0 ? 0xff : 0;
    }
};
constexpr SignMasks sign_masks;

template <int count>
struct Codes {  // `count` bytes as a vector
    typedef uint8_t Vector __attribute__((vector_size(count)));
    HY3_INLINE Vector read(const void* p) {
        Vector x;
        __builtin_memcpy(&x, p, count);
        return x;
    }
};

// `count` magnitudes with a sign bit each, shifted by `offset`.
template <int count>
HY3_INLINE void signed_codes(const uint8_t* grid, uint32_t signs, uint8_t offset, uint8_t* __restrict u) {
    using C = Codes<count>;
    const auto negative = C::read(sign_masks.bytes[signs & 255u]);
    const auto codes = ((C::read(grid) ^ negative) - negative) + offset;
    __builtin_memcpy(u, &codes, count);
}

struct UnpackIQ2_XXS : Super<BlockIQ2_XXS, 32> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        const float d = half_to_float(b.d);
        const auto* words = reinterpret_cast<const uint8_t*>(b.qs);
        for (int g = 0; g < 8; g++) {
            const uint32_t codes = read_u32(words + 8 * g), signs = read_u32(words + 8 * g + 4);
            for (int j = 0; j < 4; j++)
                signed_codes<8>(iq2xxs_grid[codes >> (8 * j) & 255u], ksigns[signs >> (7 * j) & 127u], offset,
                                u + 32 * g + 8 * j);
            scale[g] = d * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
        }
    }
};

HY3_INLINE void nibble_scales(const uint8_t* scales, float d, float* __restrict scale) {
    for (int g = 0; g < 16; g++)
        scale[g] = d * (0.5f + static_cast<float>(scales[g >> 1] >> (4 * (g & 1)) & 15)) * 0.25f;
}

struct UnpackIQ2_XS : Super<BlockIQ2_XS, 16> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        for (int c = 0; c < 32; c++) {
            const uint32_t code = b.qs[c];
            signed_codes<8>(iq2xs_grid[code & 511u], ksigns[code >> 9], offset, u + 8 * c);
        }
        nibble_scales(b.scales, half_to_float(b.d), scale);
    }
};

struct UnpackIQ2_S : Super<BlockIQ2_S, 16> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        for (int c = 0; c < 32; c++) {
            const uint32_t high = b.qh[c >> 2] >> (2 * (c & 3)) & 3u;
            signed_codes<8>(iq2s_grid[b.qs[c] | high << 8], b.signs[c], offset, u + 8 * c);
        }
        nibble_scales(b.scales, half_to_float(b.d), scale);
    }
};

struct UnpackIQ3_XXS : Super<BlockIQ3_XXS, 32> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const uint32_t word = read_u32(b.gas + 4 * g);
            for (int j = 0; j < 8; j++) {
                const uint32_t signs = ksigns[word >> (7 * (j >> 1)) & 127u];
                signed_codes<4>(iq3xxs_grid[b.qs[8 * g + j]], signs >> (4 * (j & 1)), offset,
                                u + 32 * g + 4 * j);
            }
            scale[g] = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
        }
    }
};

struct UnpackIQ3_S : Super<BlockIQ3_S, 32> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        const float d = half_to_float(b.d);
        for (int c = 0; c < 64; c++) {
            const uint32_t high = b.qh[c >> 3] >> (c & 7) & 1u;
            signed_codes<4>(iq3s_grid[b.qs[c] | high << 8], b.signs[c >> 1] >> (4 * (c & 1)), offset,
                            u + 4 * c);
        }
        for (int g = 0; g < 8; g++)
            scale[g] = d * static_cast<float>(1 + 2 * (b.scales[g >> 1] >> (4 * (g & 1)) & 15));
    }
};

// The IQ1 formats shift eight codes -1, 0, 1 by delta = +-1/8: in eighths that is 8 * code +- 1.
HY3_INLINE void eighths(const int8_t* grid, bool minus, uint8_t offset, uint8_t* __restrict u) {
    const auto shift = static_cast<uint8_t>(minus ? offset - 1 : offset + 1);
    const auto codes = Codes<8>::read(grid) * uint8_t{8} + shift;
    __builtin_memcpy(u, &codes, 8);
}

struct UnpackIQ1_S : Super<BlockIQ1_S, 32> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const uint32_t qh = b.qh[g];
            for (int j = 0; j < 4; j++)
                eighths(iq1s_grid[b.qs[4 * g + j] | (qh >> (3 * j) & 7u) << 8], (qh & 0x8000u) != 0, offset,
                        u + 32 * g + 8 * j);
            scale[g] = d * static_cast<float>(2 * (qh >> 12 & 7u) + 1) * 0.125f;
        }
    }
};

struct UnpackIQ1_M : Super<BlockIQ1_M, 16> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* __restrict u, float* __restrict scale, float*) {
        uint16_t words[4];
        __builtin_memcpy(words, b.scales, sizeof words);
        const int bits =
            words[0] >> 12 | (words[1] >> 12) << 4 | (words[2] >> 12) << 8 | (words[3] >> 12) << 12;
        const float d = half_to_float(static_cast<uint16_t>(bits));
        for (int c = 0; c < 32; c++) {
            const uint32_t high = b.qh[c >> 1] >> (4 * (c & 1)) & 15u;
            eighths(iq1s_grid[b.qs[c] | (high & 7u) << 8], (high & 8u) != 0, offset, u + 8 * c);
        }
        for (int g = 0; g < 16; g++)
            scale[g] = d * static_cast<float>(2 * (words[g >> 2] >> (3 * (g & 3)) & 7) + 1) * 0.125f;
    }
};
