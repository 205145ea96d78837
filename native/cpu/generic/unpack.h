// Block formats brought to one form that the product kernels compute with: unsigned bytes u, and per group of
// columns a scale and (for some formats) a bias, so that   w = scale * (u - offset) + bias.
//
// One struct per format:
//   Block       its storage (quant/blocks.h); elements: columns in a block
//   group       columns that share a scale: 16 or 32
//   offset      what u is shifted by to be unsigned
//   wide        whether u can exceed 127
//   has_bias    whether the format has minima; if not, unpack leaves bias alone
//   unpack      one block: u[elements], scale and bias of group g at [g * kPanel]
// Plain loops: compiled per instruction set, they become vector code.

HY3_INLINE uint32_t read_u32(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, 4);
    return word;
}

template <typename B>
struct Small {  // 32 columns, one scale
    using Block = B;
    static constexpr int elements = 32;
    static constexpr int group = 32;
    static constexpr int offset = 0;
    static constexpr bool wide = false;
    static constexpr bool has_bias = false;
};

HY3_INLINE void low_high_nibbles(const uint8_t* qs, uint8_t* u) {
    for (int i = 0; i < 16; i++) u[i] = qs[i] & 15;
    for (int i = 0; i < 16; i++) u[16 + i] = qs[i] >> 4;
}

struct UnpackQ4_0 : Small<BlockQ4_0> {
    static constexpr int offset = 8;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        low_high_nibbles(b.qs, u);
        *scale = half_to_float(b.d);
    }
};

struct UnpackQ4_1 : Small<BlockQ4_1> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float* bias) {
        low_high_nibbles(b.qs, u);
        *scale = half_to_float(b.d);
        *bias = half_to_float(b.m);
    }
};

HY3_INLINE void five_bits(const uint8_t* qs, const uint8_t* qh, uint8_t* u) {
    low_high_nibbles(qs, u);
    const uint32_t high = read_u32(qh);
    for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(u[i] | (high >> i & 1u) << 4);
}

struct UnpackQ5_0 : Small<BlockQ5_0> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        five_bits(b.qs, b.qh, u);
        *scale = half_to_float(b.d);
    }
};

struct UnpackQ5_1 : Small<BlockQ5_1> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float* bias) {
        five_bits(b.qs, b.qh, u);
        *scale = half_to_float(b.d);
        *bias = half_to_float(b.m);
    }
};

struct UnpackQ8_0 : Small<BlockQ8_0> {
    static constexpr int offset = 128;
    static constexpr bool wide = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(static_cast<uint8_t>(b.qs[i]) ^ 0x80u);
        *scale = half_to_float(b.d);
    }
};

struct UnpackIQ4_NL : Small<BlockIQ4_NL> {
    static constexpr int offset = 128;
    static constexpr bool wide = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        low_high_nibbles(b.qs, u);
        for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(kvalues_iq4nl[u[i]] + offset);
        *scale = half_to_float(b.d);
    }
};

struct UnpackMXFP4 : Small<BlockMXFP4> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        low_high_nibbles(b.qs, u);
        for (int i = 0; i < 32; i++) u[i] = static_cast<uint8_t>(kvalues_mxfp4[u[i]] + offset);
        // 2^(e - 127) / 2; subnormal for the two smallest.
        const uint32_t bits = b.e < 2 ? 0x00200000u << b.e : static_cast<uint32_t>(b.e - 1) << 23;
        __builtin_memcpy(scale, &bits, 4);
    }
};

template <typename B, int group_columns>
struct Super {  // 256 columns
    using Block = B;
    static constexpr int elements = 256;
    static constexpr int group = group_columns;
    static constexpr int offset = 0;
    static constexpr bool wide = false;
    static constexpr bool has_bias = false;
};

// Two bits per column: quarter j of each half is bits 2j, 2j+1.
HY3_INLINE void two_bits(const uint8_t* qs, uint8_t* u) {
    for (int half = 0; half < 2; half++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 32; k++) u[128 * half + 32 * j + k] = qs[32 * half + k] >> (2 * j) & 3;
}

struct UnpackQ2_K : Super<BlockQ2_K, 16> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float* bias) {
        two_bits(b.qs, u);
        const float d = half_to_float(b.d), m = -half_to_float(b.dmin);
        for (int g = 0; g < 16; g++) {
            scale[g * kPanel] = d * static_cast<float>(b.scales[g] & 15);
            bias[g * kPanel] = m * static_cast<float>(b.scales[g] >> 4);
        }
    }
};

struct UnpackQ3_K : Super<BlockQ3_K, 16> {
    static constexpr int offset = 4;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        two_bits(b.qs, u);
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 32; k++)
                u[32 * j + k] = static_cast<uint8_t>(u[32 * j + k] | (b.hmask[k] >> j & 1) << 2);
        const float d = half_to_float(b.d);
        for (int g = 0; g < 16; g++) {
            const int low = b.scales[g & 7] >> (4 * (g >> 3)) & 15,
                      high = b.scales[8 + (g & 3)] >> (2 * (g >> 2)) & 3;
            scale[g * kPanel] = d * static_cast<float>((low | high << 4) - 32);
        }
    }
};

// Low nibbles of 32 bytes, then high ones, four times.
HY3_INLINE void nibbles_by_32(const uint8_t* qs, uint8_t* u) {
    for (int j = 0; j < 4; j++) {
        for (int k = 0; k < 32; k++) u[64 * j + k] = qs[32 * j + k] & 15;
        for (int k = 0; k < 32; k++) u[64 * j + 32 + k] = qs[32 * j + k] >> 4;
    }
}

// The 6-bit scales and minima of Q4_K and Q5_K, two words of four bytes each.
HY3_INLINE void six_bit_scales(const uint8_t* packed, uint16_t d_half, uint16_t dmin_half, float* scale,
                               float* bias) {
    const uint32_t a = read_u32(packed), b = read_u32(packed + 4), c = read_u32(packed + 8);
    const uint32_t scales[2] = {a & 0x3f3f3f3fu, (c & 0x0f0f0f0fu) | (a >> 6 & 0x03030303u) << 4};
    const uint32_t minima[2] = {b & 0x3f3f3f3fu, (c >> 4 & 0x0f0f0f0fu) | (b >> 6 & 0x03030303u) << 4};
    const float d = half_to_float(d_half), m = -half_to_float(dmin_half);
    for (int g = 0; g < 8; g++) {
        scale[g * kPanel] = d * static_cast<float>(scales[g >> 2] >> (8 * (g & 3)) & 63u);
        bias[g * kPanel] = m * static_cast<float>(minima[g >> 2] >> (8 * (g & 3)) & 63u);
    }
}

struct UnpackQ4_K : Super<BlockQ4_K, 32> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float* bias) {
        nibbles_by_32(b.qs, u);
        six_bit_scales(b.scales, b.d, b.dmin, scale, bias);
    }
};

struct UnpackQ5_K : Super<BlockQ5_K, 32> {
    static constexpr bool has_bias = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float* bias) {
        nibbles_by_32(b.qs, u);
        for (int j = 0; j < 8; j++)
            for (int k = 0; k < 32; k++)
                u[32 * j + k] = static_cast<uint8_t>(u[32 * j + k] | (b.qh[k] >> j & 1) << 4);
        six_bit_scales(b.scales, b.d, b.dmin, scale, bias);
    }
};

struct UnpackQ6_K : Super<BlockQ6_K, 16> {
    static constexpr int offset = 32;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        for (int half = 0; half < 2; half++)
            for (int j = 0; j < 4; j++) {
                const uint8_t* low = b.ql + 64 * half + 32 * (j & 1);
                const uint8_t* high = b.qh + 32 * half;
                uint8_t* to = u + 128 * half + 32 * j;
                for (int k = 0; k < 32; k++)
                    to[k] =
                        static_cast<uint8_t>((low[k] >> (4 * (j >> 1)) & 15) | (high[k] >> (2 * j) & 3) << 4);
            }
        const float d = half_to_float(b.d);
        for (int g = 0; g < 16; g++) scale[g * kPanel] = d * static_cast<float>(b.scales[g]);
    }
};

struct UnpackIQ4_XS : Super<BlockIQ4_XS, 32> {
    static constexpr int offset = 128;
    static constexpr bool wide = true;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        for (int g = 0; g < 8; g++) low_high_nibbles(b.qs + 16 * g, u + 32 * g);
        for (int i = 0; i < 256; i++) u[i] = static_cast<uint8_t>(kvalues_iq4nl[u[i]] + offset);
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const int s = (b.scales_l[g >> 1] >> (4 * (g & 1)) & 15) | (b.scales_h >> (2 * g) & 3) << 4;
            scale[g * kPanel] = d * static_cast<float>(s - 32);
        }
    }
};

// `count` magnitudes, a sign bit each, shifted by `offset`.
template <int count>
HY3_INLINE void signed_codes(const uint8_t* grid, uint32_t signs, int offset, uint8_t* u) {
    for (int i = 0; i < count; i++) {
        const int value = grid[i];
        u[i] = static_cast<uint8_t>(offset + ((signs >> i & 1u) != 0 ? -value : value));
    }
}

struct UnpackIQ2_XXS : Super<BlockIQ2_XXS, 32> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        const float d = half_to_float(b.d);
        const auto* words = reinterpret_cast<const uint8_t*>(b.qs);
        for (int g = 0; g < 8; g++) {
            const uint32_t codes = read_u32(words + 8 * g), signs = read_u32(words + 8 * g + 4);
            for (int j = 0; j < 4; j++)
                signed_codes<8>(iq2xxs_grid[codes >> (8 * j) & 255u], ksigns[signs >> (7 * j) & 127u], offset,
                                u + 32 * g + 8 * j);
            scale[g * kPanel] = d * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
        }
    }
};

HY3_INLINE void nibble_scales(const uint8_t* scales, float d, float* scale) {
    for (int g = 0; g < 16; g++)
        scale[g * kPanel] = d * (0.5f + static_cast<float>(scales[g >> 1] >> (4 * (g & 1)) & 15)) * 0.25f;
}

struct UnpackIQ2_XS : Super<BlockIQ2_XS, 16> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        for (int c = 0; c < 32; c++) {
            const uint32_t code = b.qs[c];
            signed_codes<8>(iq2xs_grid[code & 511u], ksigns[code >> 9], offset, u + 8 * c);
        }
        nibble_scales(b.scales, half_to_float(b.d), scale);
    }
};

struct UnpackIQ2_S : Super<BlockIQ2_S, 16> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        for (int c = 0; c < 32; c++) {
            const uint32_t high = b.qh[c >> 2] >> (2 * (c & 3)) & 3u;
            signed_codes<8>(iq2s_grid[b.qs[c] | high << 8], b.signs[c], offset, u + 8 * c);
        }
        nibble_scales(b.scales, half_to_float(b.d), scale);
    }
};

struct UnpackIQ3_XXS : Super<BlockIQ3_XXS, 32> {
    static constexpr int offset = 64;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const uint32_t word = read_u32(b.gas + 4 * g);
            for (int j = 0; j < 8; j++) {
                const uint32_t signs = ksigns[word >> (7 * (j >> 1)) & 127u];
                signed_codes<4>(iq3xxs_grid[b.qs[8 * g + j]], signs >> (4 * (j & 1)), offset,
                                u + 32 * g + 4 * j);
            }
            scale[g * kPanel] = d * (0.5f + static_cast<float>(word >> 28)) * 0.5f;
        }
    }
};

struct UnpackIQ3_S : Super<BlockIQ3_S, 32> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        const float d = half_to_float(b.d);
        for (int c = 0; c < 64; c++) {
            const uint32_t high = b.qh[c >> 3] >> (c & 7) & 1u;
            signed_codes<4>(iq3s_grid[b.qs[c] | high << 8], b.signs[c >> 1] >> (4 * (c & 1)), offset,
                            u + 4 * c);
        }
        for (int g = 0; g < 8; g++)
            scale[g * kPanel] = d * static_cast<float>(1 + 2 * (b.scales[g >> 1] >> (4 * (g & 1)) & 15));
    }
};

// The IQ1 formats shift eight codes -1, 0, 1 by delta = +-1/8: in eighths that is 8 * code +- 1.
HY3_INLINE void eighths(const int8_t* grid, bool minus, int offset, uint8_t* u) {
    const int shift = offset + (minus ? -1 : 1);
    for (int i = 0; i < 8; i++) u[i] = static_cast<uint8_t>(8 * grid[i] + shift);
}

struct UnpackIQ1_S : Super<BlockIQ1_S, 32> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
        const float d = half_to_float(b.d);
        for (int g = 0; g < 8; g++) {
            const uint32_t qh = b.qh[g];
            for (int j = 0; j < 4; j++)
                eighths(iq1s_grid[b.qs[4 * g + j] | (qh >> (3 * j) & 7u) << 8], (qh & 0x8000u) != 0, offset,
                        u + 32 * g + 8 * j);
            scale[g * kPanel] = d * static_cast<float>(2 * (qh >> 12 & 7u) + 1) * 0.125f;
        }
    }
};

struct UnpackIQ1_M : Super<BlockIQ1_M, 16> {
    static constexpr int offset = 16;
    HY3_INLINE void unpack(const Block& b, uint8_t* u, float* scale, float*) {
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
            scale[g * kPanel] = d * static_cast<float>(2 * (words[g >> 2] >> (3 * (g & 3)) & 7) + 1) * 0.125f;
    }
};
