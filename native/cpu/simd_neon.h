// The vector vocabulary on NEON (AArch64), without dot4() (dot_neon_*.h): a vector is four registers, and a
// register is a quarter.
//
// Included inside namespaces of their own by isa_neon*.cpp; what each operation means is in simd_scalar.h.

struct F {
    float32x4_t q[4];
};
struct I {
    int32x4_t q[4];
};
#define HY3_INLINE [[gnu::always_inline]] static inline

constexpr int kFloatWeights = 2;
constexpr int kFloatRows = 2;
constexpr int kCodeRows = 1;
constexpr int kDottedRowsQ8_0 = 2;
constexpr int kDottedRowsOfQuads = 0;
struct WholeVector;
using FloatPart = WholeVector;
constexpr int kWideOffset = 0;

// A vector of what `quarter` makes of each quarter.
template <typename V, typename Quarter>
HY3_INLINE V by_quarter(Quarter quarter) {
    return {{quarter(0), quarter(1), quarter(2), quarter(3)}};
}

HY3_INLINE F load(const float* p) {
    return by_quarter<F>([&](int j) { return vld1q_f32(p + 4 * j); });
}
HY3_INLINE void store(float* p, F x) {
    for (int j = 0; j < 4; j++) vst1q_f32(p + 4 * j, x.q[j]);
}
HY3_INLINE float half_to_float(uint16_t h) {
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
HY3_INLINE F load_f16(const uint16_t* p) {
    return by_quarter<F>([&](int j) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * j))); });
}
HY3_INLINE F load_f16_each(const uint8_t* const* rows, int64_t at) {
    return by_quarter<F>([&](int j) {
        const auto half = [&](int r) { return reinterpret_cast<const uint16_t*>(rows[4 * j + r] + at); };
        uint16x4_t x = vld1_dup_u16(half(0));
        x = vld1_lane_u16(half(1), x, 1);
        x = vld1_lane_u16(half(2), x, 2);
        x = vld1_lane_u16(half(3), x, 3);
        return vcvt_f32_f16(vreinterpret_f16_u16(x));
    });
}
HY3_INLINE void store_f16(uint16_t* p, F x) {
    for (int j = 0; j < 4; j++) vst1_u16(p + 4 * j, vreinterpret_u16_f16(vcvt_f16_f32(x.q[j])));
}
HY3_INLINE F load_bf16(const uint16_t* p) {
    return by_quarter<F>([&](int j) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * j), 16)); });
}

HY3_INLINE F set1(float x) {
    return by_quarter<F>([&](int) { return vdupq_n_f32(x); });
}
HY3_INLINE F add(F a, F b) {
    return by_quarter<F>([&](int j) { return vaddq_f32(a.q[j], b.q[j]); });
}
HY3_INLINE F sub(F a, F b) {
    return by_quarter<F>([&](int j) { return vsubq_f32(a.q[j], b.q[j]); });
}
HY3_INLINE F mul(F a, F b) {
    return by_quarter<F>([&](int j) { return vmulq_f32(a.q[j], b.q[j]); });
}
HY3_INLINE F div(F a, F b) {
    return by_quarter<F>([&](int j) { return vdivq_f32(a.q[j], b.q[j]); });
}
HY3_INLINE F fma(F a, F b, F c) {
    return by_quarter<F>([&](int j) { return vfmaq_f32(c.q[j], a.q[j], b.q[j]); });
}
// Not fmax and fmin, which have it that a NaN always stays.
HY3_INLINE F larger(F a, F b) {
    return by_quarter<F>([&](int j) { return vbslq_f32(vcgtq_f32(a.q[j], b.q[j]), a.q[j], b.q[j]); });
}
HY3_INLINE F smaller(F a, F b) {
    return by_quarter<F>([&](int j) { return vbslq_f32(vcltq_f32(a.q[j], b.q[j]), a.q[j], b.q[j]); });
}

HY3_INLINE I load_bytes(const void* p) {
    const auto* from = static_cast<const uint8_t*>(p);
    return by_quarter<I>([&](int j) { return vreinterpretq_s32_u8(vld1q_u8(from + 16 * j)); });
}
// Not vst1q: to gcc that is no store of characters, and a load of other words from there may overtake it.
HY3_INLINE void store_quarter(void* p, int32x4_t x) {
    __builtin_memcpy(p, &x, sizeof x);
}
HY3_INLINE void store_bytes(void* p, I x) {
    __builtin_memcpy(p, x.q, sizeof x.q);
}
HY3_INLINE I iset1(int32_t x) {
    return by_quarter<I>([&](int) { return vdupq_n_s32(x); });
}
HY3_INLINE I low_nibbles(I x) {
    return by_quarter<I>([&](int j) { return vandq_s32(x.q[j], vdupq_n_s32(0x0f0f0f0f)); });
}
HY3_INLINE I high_nibbles(I x) {
    return by_quarter<I>(
        [&](int j) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(x.q[j]), 4)); });
}
HY3_INLINE I repeat4(const int8_t* p) {
    int32_t word;
    __builtin_memcpy(&word, p, 4);
    return iset1(word);
}
HY3_INLINE I repeat16(const int8_t* p) {
    return by_quarter<I>([&](int) { return vreinterpretq_s32_s8(vld1q_s8(p)); });
}
HY3_INLINE I iadd(I a, I b) {
    return by_quarter<I>([&](int j) { return vaddq_s32(a.q[j], b.q[j]); });
}
HY3_INLINE I ilarger(I a, I b) {
    return by_quarter<I>([&](int j) { return vmaxq_s32(a.q[j], b.q[j]); });
}
HY3_INLINE F to_float(I x) {
    return by_quarter<F>([&](int j) { return vcvtq_f32_s32(x.q[j]); });
}
// The conversion alone would give the largest integer for what is too large, and zero for NaN.
HY3_INLINE I round_to_int(F x) {
    const float32x4_t end = vdupq_n_f32(2147483648.0f);
    const int32x4_t smallest = vdupq_n_s32(-2147483647 - 1);
    return by_quarter<I>(
        [&](int j) { return vbslq_s32(vcltq_f32(x.q[j], end), vcvtnq_s32_f32(x.q[j]), smallest); });
}
HY3_INLINE I abs_bits(F x) {
    return by_quarter<I>([&](int j) { return vreinterpretq_s32_f32(vabsq_f32(x.q[j])); });
}
HY3_INLINE F power_of_two(I n) {
    return by_quarter<F>(
        [&](int j) { return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n.q[j], vdupq_n_s32(127)), 23)); });
}
HY3_INLINE void store_int8(int8_t* p, I x) {
    const int16x8_t low = vcombine_s16(vmovn_s32(x.q[0]), vmovn_s32(x.q[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(x.q[2]), vmovn_s32(x.q[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}
HY3_INLINE int32_t sum_lanes(I x) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.q[0], x.q[1]), vaddq_s32(x.q[2], x.q[3])));
}
HY3_INLINE int32_t largest_lane(I x) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.q[0], x.q[1]), vmaxq_s32(x.q[2], x.q[3])));
}

HY3_INLINE int32x4_t low_halves(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
HY3_INLINE int32x4_t high_halves(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
HY3_INLINE I sum_quarters(I a, I b, I c, I d) {
    return by_quarter<I>(
        [&](int j) { return vpaddq_s32(vpaddq_s32(a.q[j], b.q[j]), vpaddq_s32(c.q[j], d.q[j])); });
}
HY3_INLINE F sum_quarters(F a, F b, F c, F d) {
    return by_quarter<F>([&](int j) {
        const int32x4_t ab =
            vreinterpretq_s32_f32(vaddq_f32(vzip1q_f32(a.q[j], b.q[j]), vzip2q_f32(a.q[j], b.q[j])));
        const int32x4_t cd =
            vreinterpretq_s32_f32(vaddq_f32(vzip1q_f32(c.q[j], d.q[j]), vzip2q_f32(c.q[j], d.q[j])));
        return vaddq_f32(vreinterpretq_f32_s32(low_halves(ab, cd)),
                         vreinterpretq_f32_s32(high_halves(ab, cd)));
    });
}
HY3_INLINE void gather_quarters(I a, I b, I c, I d, I out[4]) {
    for (int j = 0; j < 4; j++) out[j] = {{a.q[j], b.q[j], c.q[j], d.q[j]}};
}
HY3_INLINE void gather_quarters(F a, F b, F c, F d, F out[4]) {
    for (int j = 0; j < 4; j++) out[j] = {{a.q[j], b.q[j], c.q[j], d.q[j]}};
}
HY3_INLINE void transpose_quarters(I a, I b, I c, I d, I out[4]) {
    for (int j = 0; j < 4; j++) {
        const int32x4_t ac_low = vzip1q_s32(a.q[j], c.q[j]), ac_high = vzip2q_s32(a.q[j], c.q[j]);
        const int32x4_t bd_low = vzip1q_s32(b.q[j], d.q[j]), bd_high = vzip2q_s32(b.q[j], d.q[j]);
        out[0].q[j] = vzip1q_s32(ac_low, bd_low);
        out[1].q[j] = vzip2q_s32(ac_low, bd_low);
        out[2].q[j] = vzip1q_s32(ac_high, bd_high);
        out[3].q[j] = vzip2q_s32(ac_high, bd_high);
    }
}

#include "cpu/simd_neon_bytes.h"

#include "cpu/simd_parts.h"
