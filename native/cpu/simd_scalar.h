// The vector vocabulary in plain C++: what every operation means. Runs anywhere, slowly.
//
// F is a vector of 16 floats. I is a vector of 16 int32, or of 64 bytes: word i holds bytes 4i..4i+3. A
// "quarter" is four neighbouring lanes. Included inside a namespace of its own by isa_scalar.cpp.

struct F {
    float v[16];
};
struct I {
    int32_t v[16];
};
#if defined(__SANITIZE_ADDRESS__)
// With a check at every element, and all of it inlined, the compiler would take ten minutes.
#define HY3_INLINE static inline
#else
#define HY3_INLINE [[gnu::always_inline]] static inline
#endif

constexpr int kRowBlock = 1;        // activation rows a quantized product keeps in registers
constexpr int kFloatWeights = 1;    // weight rows and
constexpr int kFloatRows = 1;       // activation rows a float product keeps in registers
constexpr int kCodeRows = 1;        // queries whose products with a quantized cache are in registers
constexpr int kDottedRowsQ8_0 = 2;  // activation rows of a Q8_0 product that are dotted (generic/few_rows.h)
constexpr int kDottedRowsOfQuads = 2;  // the same where four weight rows share a vector; 0: they never do
// What a float product works on at a time (generic/float_product.h).
struct WholeVector;
using FloatPart = WholeVector;
// What codes of eight bits are shifted by: 128, or 0 where dot4() takes signed ones.
constexpr int kWideOffset = 128;
// How several activation rows are multiplied (generic/tile.h).
struct Dot4Tile;
using Tile = Dot4Tile;

HY3_INLINE float bits_to_float(uint32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}
HY3_INLINE uint32_t float_to_bits(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits;
}

HY3_INLINE F load(const float* p) {
    F x;
    __builtin_memcpy(x.v, p, sizeof x.v);
    return x;
}
HY3_INLINE void store(float* p, F x) {
    __builtin_memcpy(p, x.v, sizeof x.v);
}
// Exact, subnormals included, as F16C does it.
HY3_INLINE float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, rest = h & 0x7fffu;
    if (rest >= 0x7c00u)
        return bits_to_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | (rest > 0x7c00u ? 0x400000u : 0));
    if (rest >= 0x400u) return bits_to_float(sign | ((rest << 13) + 0x38000000u));
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return bits_to_float(sign | float_to_bits(magnitude));
}
// Round to nearest even, as F16C does it.
HY3_INLINE uint16_t float_to_half(float x) {
    const uint32_t bits = float_to_bits(x), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    if (rest >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (rest < 0x38800000u) {  // subnormal: let the float adder round at 2^-24
        const float shifted = bits_to_float(rest) + 0.5f;
        return static_cast<uint16_t>(sign | (float_to_bits(shifted) - float_to_bits(0.5f)));
    }
    const uint32_t rounded = rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u);
    return static_cast<uint16_t>(sign | rounded >> 13);
}
HY3_INLINE F load_f16(const uint16_t* p) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = half_to_float(p[i]);
    return x;
}
// The float16 number at byte `at` of each row, which need not be aligned.
HY3_INLINE F load_f16_each(const uint8_t* const* rows, int64_t at) {
    uint16_t halves[16];
    for (int r = 0; r < 16; r++) __builtin_memcpy(halves + r, rows[r] + at, 2);
    return load_f16(halves);
}
HY3_INLINE void store_f16(uint16_t* p, F x) {
    for (int i = 0; i < 16; i++) p[i] = float_to_half(x.v[i]);
}
HY3_INLINE F load_bf16(const uint16_t* p) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = bits_to_float(static_cast<uint32_t>(p[i]) << 16);
    return x;
}

template <typename Op>
HY3_INLINE F lanewise(F a, F b, Op op) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = op(a.v[i], b.v[i]);
    return x;
}
HY3_INLINE F set1(float value) {
    F x;
    for (float& lane : x.v) lane = value;
    return x;
}
HY3_INLINE F add(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x + y; });
}
HY3_INLINE F sub(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x - y; });
}
HY3_INLINE F mul(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x * y; });
}
HY3_INLINE F div(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x / y; });
}
// a * b + c, rounded once.
HY3_INLINE F fma(F a, F b, F c) {
    F x;
    for (int i = 0; i < 16; i++) x.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
    return x;
}
// b where the two do not compare, as x86 has it.
HY3_INLINE F larger(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x > y ? x : y; });
}
HY3_INLINE F smaller(F a, F b) {
    return lanewise(a, b, [](float x, float y) { return x < y ? x : y; });
}

HY3_INLINE I load_bytes(const void* p) {
    I x;
    __builtin_memcpy(x.v, p, sizeof x.v);
    return x;
}
HY3_INLINE void store_bytes(void* p, I x) {
    __builtin_memcpy(p, x.v, sizeof x.v);
}
// Four bytes, sixteen times.
HY3_INLINE I repeat4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    I x;
    for (int32_t& lane : x.v) lane = word;
    return x;
}
// Sixteen bytes, four times.
HY3_INLINE I repeat16(const int8_t* p) {
    I x;
    for (int i = 0; i < 4; i++) __builtin_memcpy(x.v + 4 * i, p, 16);
    return x;
}
// The low and the high half of each byte.
HY3_INLINE I low_nibbles(I x) {
    for (int32_t& lane : x.v) lane &= 0x0f0f0f0f;
    return x;
}
HY3_INLINE I high_nibbles(I x) {
    for (int32_t& lane : x.v) lane = lane >> 4 & 0x0f0f0f0f;
    return x;
}
HY3_INLINE I iset1(int32_t value) {
    I x;
    for (int32_t& lane : x.v) lane = value;
    return x;
}
HY3_INLINE I iadd(I a, I b) {
    for (int i = 0; i < 16; i++) a.v[i] += b.v[i];
    return a;
}
HY3_INLINE I ilarger(I a, I b) {
    for (int i = 0; i < 16; i++) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
}
// Lane i += the products of bytes 4i..4i+3, codes times -127..127; exact. Codes are below 2^code_bits; those
// of eight bits are shifted by kWideOffset.
template <int code_bits>
HY3_INLINE I dot4(I sum, I codes, I s8) {
    uint8_t u[64];
    int8_t s[64];
    __builtin_memcpy(u, codes.v, 64);
    __builtin_memcpy(s, s8.v, 64);
    for (int i = 0; i < 64; i++) sum.v[i / 4] += u[i] * s[i];
    return sum;
}
HY3_INLINE F to_float(I x) {
    F out;
    for (int i = 0; i < 16; i++) out.v[i] = static_cast<float>(x.v[i]);
    return out;
}
// To nearest, ties to even; what does not fit becomes the smallest integer.
HY3_INLINE I round_to_int(F x) {
    I out;
    for (int i = 0; i < 16; i++) {
        const bool fits = x.v[i] >= -2147483648.0f && x.v[i] < 2147483648.0f;
        out.v[i] = fits ? static_cast<int32_t>(__builtin_nearbyintf(x.v[i])) : -2147483647 - 1;
    }
    return out;
}
// |x| as integers: the order of finite floats, infinity above them, NaN on top.
HY3_INLINE I abs_bits(F x) {
    I out;
    for (int i = 0; i < 16; i++) out.v[i] = static_cast<int32_t>(float_to_bits(x.v[i]) & 0x7fffffffu);
    return out;
}
HY3_INLINE F power_of_two(I n) {
    F out;
    for (int i = 0; i < 16; i++) out.v[i] = bits_to_float(static_cast<uint32_t>(n.v[i] + 127) << 23);
    return out;
}
// The low byte of each lane.
HY3_INLINE void store_int8(int8_t* p, I x) {
    for (int i = 0; i < 16; i++) p[i] = static_cast<int8_t>(x.v[i]);
}
HY3_INLINE int32_t sum_lanes(I x) {
    int32_t sum = 0;
    for (const int32_t lane : x.v) sum += lane;
    return sum;
}
HY3_INLINE int32_t largest_lane(I x) {
    int32_t largest = x.v[0];
    for (const int32_t lane : x.v) largest = lane > largest ? lane : largest;
    return largest;
}

// Quarter j, lane r: the sum of quarter j of row r (a, b, c, d), as (x0 + x2) + (x1 + x3).
template <typename V>
HY3_INLINE V sum_quarters_of(const V& a, const V& b, const V& c, const V& d) {
    const V* rows[4] = {&a, &b, &c, &d};
    V out;
    for (int j = 0; j < 4; j++)
        for (int r = 0; r < 4; r++) {
            const auto* x = rows[r]->v + 4 * j;
            out.v[4 * j + r] = (x[0] + x[2]) + (x[1] + x[3]);
        }
    return out;
}
HY3_INLINE I sum_quarters(I a, I b, I c, I d) {
    return sum_quarters_of(a, b, c, d);
}
HY3_INLINE F sum_quarters(F a, F b, F c, F d) {
    return sum_quarters_of(a, b, c, d);
}
// out[j] = quarter j of a, b, c, d one after the other.
template <typename V>
HY3_INLINE void gather_quarters_of(const V& a, const V& b, const V& c, const V& d, V out[4]) {
    const V* rows[4] = {&a, &b, &c, &d};
    for (int j = 0; j < 4; j++)
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < 4; i++) out[j].v[4 * r + i] = rows[r]->v[4 * j + i];
}
HY3_INLINE void gather_quarters(I a, I b, I c, I d, I out[4]) {
    gather_quarters_of(a, b, c, d, out);
}
HY3_INLINE void gather_quarters(F a, F b, F c, F d, F out[4]) {
    gather_quarters_of(a, b, c, d, out);
}
// Within each quarter, the 4x4 transpose of rows a, b, c, d.
HY3_INLINE void transpose_quarters(I a, I b, I c, I d, I out[4]) {
    const I* rows[4] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int r = 0; r < 4; r++) out[i].v[4 * j + r] = rows[r]->v[4 * j + i];
}

#include "cpu/simd_scalar_bytes.h"

#include "cpu/simd_parts.h"
