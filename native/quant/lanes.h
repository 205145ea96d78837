// Eight floats side by side, for the searches in this folder: a lane is a candidate, and each block element
// is broadcast to all of them, so no sum ever runs across lanes and the result is the same on every
// instruction set. Compiler vectors (GCC, Clang) of the width the file is compiled for; compile this folder
// with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace hy3 {

inline constexpr int kLanes = 8;

#if defined(__AVX__)
inline constexpr int kNativeLanes = 8;
#else
inline constexpr int kNativeLanes = 4;
#endif
inline constexpr int kParts = kLanes / kNativeLanes;

typedef float NativeFloats __attribute__((vector_size(kNativeLanes * 4)));
typedef int32_t NativeInts __attribute__((vector_size(kNativeLanes * 4)));

struct Lanes {
    NativeFloats part[kParts];

    Lanes() = default;
    Lanes(float v) {  // NOLINT: a number stands for all lanes
        for (auto& p : part) p = v - NativeFloats{};
    }
    float operator[](int i) const { return part[i / kNativeLanes][i % kNativeLanes]; }
};

inline Lanes load(const float* p) {
    Lanes r;
    std::memcpy(&r, p, sizeof r);
    return r;
}
inline void store(float* p, const Lanes& v) {
    std::memcpy(p, &v, sizeof v);
}

template <typename Op>
inline Lanes each(const Lanes& a, const Lanes& b, Op op) {
    Lanes r;
    for (int i = 0; i < kParts; ++i) r.part[i] = op(a.part[i], b.part[i]);
    return r;
}

inline Lanes operator+(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return x + y; });
}
inline Lanes operator-(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return x - y; });
}
inline Lanes operator*(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return x * y; });
}
inline Lanes operator/(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return x / y; });
}

// x < y ? x : y and x > y ? x : y. The instruction has exactly these semantics (for NaN and -0 too), but GCC
// 12 does not find it.
inline NativeFloats native_min(NativeFloats x, NativeFloats y) {
#if defined(__AVX__)
    return _mm256_min_ps(x, y);
#elif defined(__SSE2__)
    return _mm_min_ps(x, y);
#else
    return x < y ? x : y;
#endif
}
inline NativeFloats native_max(NativeFloats x, NativeFloats y) {
#if defined(__AVX__)
    return _mm256_max_ps(x, y);
#elif defined(__SSE2__)
    return _mm_max_ps(x, y);
#else
    return x > y ? x : y;
#endif
}
inline Lanes min(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return native_min(x, y); });
}
inline Lanes max(const Lanes& a, const Lanes& b) {
    return each(a, b, [](auto x, auto y) { return native_max(x, y); });
}

// condition > 0 ? a : b, lane by lane.
inline Lanes where_positive(const Lanes& condition, const Lanes& a, const Lanes& b) {
    Lanes r;
    for (int i = 0; i < kParts; ++i) r.part[i] = condition.part[i] > NativeFloats{} ? a.part[i] : b.part[i];
    return r;
}

// Nearest integer (ties to even) of |v| < 2^22: adding 1.5 * 2^23 leaves no room for a fraction.
inline Lanes round(const Lanes& v) {
    return (v + 12582912.0f) - 12582912.0f;
}
inline float round(float v) {
    return (v + 12582912.0f) - 12582912.0f;
}

// Across lanes, in a fixed order.
inline float sum(const Lanes& v) {
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

inline int best_lane(const Lanes& score) {  // the lowest score; of equals the first
    int best = 0;
    for (int i = 1; i < kLanes; ++i)
        if (score[i] < score[best]) best = i;
    return best;
}

}  // namespace hy3
