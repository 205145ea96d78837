// The storage of every block format, byte for byte as in GGUF files (little-endian).
//
// Notation: w[i] is element i of the block. f16 fields hold float16 bits (half.h). Structs are packed: a
// block may lie at any address, and members are read by value. Formats were defined by ggml; the layouts
// follow the `gguf` package's NumPy dequantizers.
#pragma once

#include <bit>
#include <cstdint>

namespace hy3 {

static_assert(std::endian::native == std::endian::little, "blocks are little-endian");

inline constexpr int kSuperBlock = 256;  // elements in a block of the K and IQ families
inline constexpr int kSmallBlock = 32;   // elements in a block of the others

#pragma pack(push, 1)

// --- 32 elements, one scale
// -----------------------------------------------------------------------------------------

// w[i] = d * (q[i] - 8); q[i] for i < 16 is the low nibble of qs[i], for i >= 16 the high nibble of qs[i -
// 16].
struct BlockQ4_0 {
    uint16_t d;  // f16
    uint8_t qs[16];
};

// w[i] = d * q[i] + m; nibbles as Q4_0.
struct BlockQ4_1 {
    uint16_t d;  // f16
    uint16_t m;  // f16
    uint8_t qs[16];
};

// w[i] = d * (q[i] - 16); low four bits as Q4_0, fifth bit is bit i of qh (32 bits, little-endian).
struct BlockQ5_0 {
    uint16_t d;  // f16
    uint8_t qh[4];
    uint8_t qs[16];
};

// w[i] = d * q[i] + m; bits as Q5_0.
struct BlockQ5_1 {
    uint16_t d;  // f16
    uint16_t m;  // f16
    uint8_t qh[4];
    uint8_t qs[16];
};

// w[i] = d * qs[i].
struct BlockQ8_0 {
    uint16_t d;  // f16
    int8_t qs[32];
};

// The original hy3 engine's Q8_0: the same with a float32 scale.
struct BlockQ8_0_HY3 {
    float d;
    int8_t qs[32];
};

// w[i] = d * kvalues_iq4nl[q[i]]; nibbles as Q4_0.
struct BlockIQ4_NL {
    uint16_t d;  // f16
    uint8_t qs[16];
};

// w[i] = 2^(e - 127) / 2 * kvalues_mxfp4[q[i]]; nibbles as Q4_0.
struct BlockMXFP4 {
    uint8_t e;  // e8m0
    uint8_t qs[16];
};

// --- 256 elements, K family
// -----------------------------------------------------------------------------------------

// 16 groups g of 16 elements: w = d * (scales[g] & 15) * q - dmin * (scales[g] >> 4).
// q of element 128 * h + 32 * j + k (j < 4, k < 32) is bits 2j, 2j+1 of qs[32 * h + k].
struct BlockQ2_K {
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d;     // f16
    uint16_t dmin;  // f16
};

// 16 groups g of 16: w = d * (scale[g] - 32) * (q - 4 * !high). q as in Q2_K. `high` of element 32 * j + k is
// bit j of hmask[k]. Low four bits of scale[g]: nibble (g >> 3) of scales[g & 7]; upper two: bits 2 (g >> 2),
// +1 of scales[8 + (g & 3)].
struct BlockQ3_K {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;  // f16
};

// 8 groups g of 32: w = d * sc[g] * q - dmin * mn[g], sc and mn of 6 bits.
// g < 4: sc = scales[g] & 63, mn = scales[4 + g] & 63.
// g >= 4: sc = low nibble of scales[4 + g], with bits 6, 7 of scales[g - 4] as bits 4, 5;
//         mn = high nibble of scales[4 + g], with bits 6, 7 of scales[g] as bits 4, 5.
// q of element 64 * j + k (k < 32) is the low nibble of qs[32 * j + k], of 64 * j + 32 + k the high one.
struct BlockQ4_K {
    uint16_t d;     // f16
    uint16_t dmin;  // f16
    uint8_t scales[12];
    uint8_t qs[128];
};

// As Q4_K with a fifth bit: that of element 32 * j + k is bit j of qh[k].
struct BlockQ5_K {
    uint16_t d;     // f16
    uint16_t dmin;  // f16
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};

// 16 groups g of 16: w = d * scales[g] * (q - 32). For half h, element 128 * h + 32 * j + k (j < 4, k < 32):
// low four bits are nibble (j >> 1) of ql[64 * h + 32 * (j & 1) + k], upper two bits 2j, 2j+1 of qh[32 * h +
// k].
struct BlockQ6_K {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;  // f16
};

// --- 256 elements, codebooks (codebooks.h)
// --------------------------------------------------------------------------

// 8 groups g of 32, each 4 codes of 8 elements. In 32-bit words of qs: word 2g holds the four grid indices (a
// byte each), word 2g+1 four 7-bit sign indices (bits 7j..7j+6, through ksigns) and a 4-bit scale s in its
// top bits. w = d * (0.5 + s) * 0.25 * +-iq2xxs_grid.
struct BlockIQ2_XXS {
    uint16_t d;  // f16
    uint16_t qs[32];
};

// 32 codes c of 8 elements: grid index qs[c] & 511, sign index qs[c] >> 9.
// Group g of 16: s = nibble (g & 1) of scales[g >> 1]; w = d * (0.5 + s) * 0.25 * +-iq2xs_grid.
struct BlockIQ2_XS {
    uint16_t d;  // f16
    uint16_t qs[32];
    uint8_t scales[8];
};

// 32 codes c of 8 elements: grid index qs[c] | (bits 2 (c & 3), +1 of qh[c >> 2]) << 8; signs[c] is a bit per
// element. Scales as IQ2_XS; w = d * (0.5 + s) * 0.25 * +-iq2s_grid.
struct BlockIQ2_S {
    uint16_t d;  // f16
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
};

// 64 codes of 4 elements: grid index qs[c]. Per group g of 32 a little-endian 32-bit word gas[4g..4g+3]: four
// 7-bit sign indices (8 elements each), 4-bit scale s on top. w = d * (0.5 + s) * 0.5 * +-iq3xxs_grid.
struct BlockIQ3_XXS {
    uint16_t d;  // f16
    uint8_t qs[64];
    uint8_t gas[32];
};

// 64 codes c of 4 elements: grid index qs[c] | (bit (c & 7) of qh[c >> 3]) << 8; a sign bit per element in
// signs. Group g of 32: s = nibble (g & 1) of scales[g >> 1]; w = d * (1 + 2 s) * +-iq3s_grid.
struct BlockIQ3_S {
    uint16_t d;  // f16
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
};

// 8 groups g of 32, each 4 codes j of 8: grid index qs[4g + j] | (bits 3j..3j+2 of qh[g]) << 8; s =
// bits 12..14 of qh[g]; delta = bit 15 ? -0.125 : 0.125. w = d * (2 s + 1) * (iq1s_grid + delta).
struct BlockIQ1_S {
    uint16_t d;  // f16
    uint8_t qs[32];
    uint16_t qh[8];
};

// 32 codes c of 8: nibble (c & 1) of qh[c >> 1]: low three bits are the index's upper bits, the fourth the
// sign of delta. `scales` are four 16-bit words: the top nibbles, word 0 lowest, form the f16 d; the low 12
// bits of word k are the 3-bit scales s of groups 4k..4k+3 of 16 elements. w = d * (2 s + 1) * (iq1s_grid +
// delta).
struct BlockIQ1_M {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
};

// 8 groups g of 32: scale s[g] = nibble (g & 1) of scales_l[g >> 1] | (bits 2g, 2g+1 of scales_h) << 4;
// w = d * (s - 32) * kvalues_iq4nl[q]; within a group q[i], i < 16, is the low nibble of qs[16 g + i], else
// the high nibble of qs[16 g + i - 16].
struct BlockIQ4_XS {
    uint16_t d;  // f16
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};

#pragma pack(pop)

static_assert(sizeof(BlockQ4_0) == 18);
static_assert(sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22);
static_assert(sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ8_0_HY3) == 36);
static_assert(sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84);
static_assert(sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176);
static_assert(sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockIQ2_XXS) == 66);
static_assert(sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82);
static_assert(sizeof(BlockIQ3_XXS) == 98);
static_assert(sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50);
static_assert(sizeof(BlockIQ1_M) == 56);
static_assert(sizeof(BlockIQ4_XS) == 136);

}  // namespace hy3
