// Internal to native/quant: the search for the scale s of a group, x ~ s * level with levels from a fixed set
// around zero (a range of integers, or a codebook). Shared by Q4_0, Q3_K, Q6_K, IQ4_NL and IQ4_XS.
//
// For given levels the best scale is a division of two sums; for a given scale the best levels are the
// nearest. The search alternates the two from several starting scales at once, one a lane (lanes.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "quant/half.h"
#include "quant/lanes.h"
#include "quant/prepare.h"

namespace hy3 {

// The integers lowest..highest.
template <int kLowest, int kHighest>
struct IntegerLevels {
    static constexpr float lowest = kLowest, highest = kHighest;
    static Lanes nearest(const Lanes& v) { return round(min(max(v, Lanes(lowest)), Lanes(highest))); }
    // What is stored: the level counted from the lowest.
    static uint8_t code(float v) {
        float kept = v < lowest ? lowest : v;
        kept = kept > highest ? highest : kept;
        return static_cast<uint8_t>(static_cast<int>(round(kept)) - kLowest);
    }
};

struct ScaleFit {
    float scale = 0.0f;  // signed
    float gain = 0.0f;   // how much of sum w x^2 the scale explains: the error is the rest
};

// Alternates `rounds` times from eight inverse scales; replaces `best` if one of them ends better.
template <typename Levels>
inline void search_scales(const float* x, const float* w, int n, Lanes inverse, int rounds, ScaleFit& best) {
    for (int round_index = 0; round_index < rounds; ++round_index) {
        Lanes xl(0.0f), ll(0.0f);
        for (int i = 0; i < n; ++i) {
            const Lanes level = Levels::nearest(Lanes(x[i]) * inverse);
            const Lanes weighted = level * Lanes(w[i]);
            xl = xl + weighted * Lanes(x[i]);
            ll = ll + weighted * level;
        }
        // xl > 0 because a level has its element's sign times the scale's; only a lane whose levels are all 0
        // lacks it.
        const Lanes scale = xl / max(ll, Lanes(1e-30f));
        const Lanes gain = scale * xl;
        if (round_index + 1 == rounds) {
            const int lane = best_lane(Lanes(0.0f) - gain);
            if (gain[lane] > best.gain) best = {scale[lane], gain[lane]};
        }
        inverse = ll / where_positive(xl * xl, xl, Lanes(1.0f));
    }
}

// Weighted squared error of a group with each of eight scales.
template <typename Levels>
Lanes scale_errors(const float* x, const float* w, int n, const Lanes& scale) {
    const Lanes inverse = where_positive(
        scale * scale, Lanes(1.0f) / where_positive(scale * scale, scale, Lanes(1.0f)), Lanes(0.0f));
    Lanes error(0.0f);
    for (int i = 0; i < n; ++i) {
        const Lanes miss = Lanes(x[i]) - scale * Levels::nearest(Lanes(x[i]) * inverse);
        error = error + miss * miss * Lanes(w[i]);
    }
    return error;
}

// The element with the largest magnitude.
inline float extreme(const float* x, int n) {
    float top = 0.0f;
    for (int i = 0; i < n; ++i) top = std::fabs(x[i]) > std::fabs(top) ? x[i] : top;
    return top;
}

// Where the search starts: the scales that put the group's extreme element at these levels, eight or sixteen
// of them. Both signs, because the set of levels is not quite symmetric; beyond the last level, because
// clipping may pay.
template <int n>
struct Starts {
    static_assert(n % kLanes == 0);
    float level[n];
};

template <typename Levels, int n_starts>
ScaleFit fit_scale(const float* x, const float* w, int n, const Starts<n_starts>& starts, int rounds) {
    ScaleFit best;
    const float top = extreme(x, n);
    if (std::fabs(top) < 1e-30f) return best;
    for (int i = 0; i < n_starts; i += kLanes)
        search_scales<Levels>(x, w, n, load(starts.level + i) * Lanes(1.0f / top), rounds, best);
    return best;
}

// A block of 32 with one float16 scale: returns its bits and fills in the codes.
template <typename Levels, int n_starts>
uint16_t fit_small_block(const float* src, const float* importance, const Starts<n_starts>& starts,
                         uint8_t* code) {
    constexpr int n = 32;
    Prepared<n> block;
    uint16_t d = 0;
    if (prepare(src, importance, block)) {
        d = f16_scale(fit_scale<Levels>(block.x, block.w, n, starts, 3).scale * block.unit);
        if ((d & 0x7fffu) < 0x0400u) {  // subnormal: the steps are coarse, so weigh the neighbours
            uint16_t near[kLanes];
            float scales[kLanes];
            const int magnitude = d & 0x7fff, first = magnitude > 4 ? magnitude - 4 : 0;
            for (int i = 0; i < kLanes; ++i) {
                near[i] = static_cast<uint16_t>((d & 0x8000) | (first + i));
                scales[i] = f16_to_f32(near[i]) / block.unit;
            }
            d = near[best_lane(scale_errors<Levels>(block.x, block.w, n, load(scales)))];
        }
    }
    const float step = f16_to_f32(d);
    const float inverse = step == 0.0f ? 0.0f : block.unit / step;
    for (int i = 0; i < n; ++i) code[i] = Levels::code(inverse == 0.0f ? 0.0f : block.x[i] * inverse);
    return d;
}

// A super-block of groups with integer scales: x ~ d * scale[g] * level(code).
template <typename Levels, int kGroups, int kGroupSize, int kScaleMin, int kScaleMax>
struct SymmetricBlock {
    static constexpr int kSize = kGroups * kGroupSize;
    uint16_t d = 0;  // f16
    int scale[kGroups] = {};
    uint8_t code[kSize] = {};

    template <int n_starts>
    void fit(const Prepared<kSize>& block, const Starts<n_starts>& starts, int rounds) {
        float target[kGroups];
        float top = 0.0f;
        for (int g = 0; g < kGroups; ++g) {
            target[g] = fit_scale<Levels>(block.x + g * kGroupSize, block.w + g * kGroupSize, kGroupSize,
                                          starts, rounds)
                            .scale;
            top = std::fabs(target[g]) > std::fabs(top) ? target[g] : top;
        }
        float best_error = INFINITY;
        uint16_t candidate = f16_scale_reaching(top / static_cast<float>(kScaleMin) * block.unit,
                                                0.5f / static_cast<float>(kScaleMax));
        if ((candidate & 0x7fffu) == 0) candidate = 1;  // below float16: the smallest step may still serve
        for (int attempt = 0; attempt < kRefinements; ++attempt) {
            int chosen[kGroups];
            const float step = f16_to_f32(candidate) / block.unit;
            float error = 0.0f;
            for (int g = 0; g < kGroups; ++g) error += choose_scale(block, g, step, target[g], chosen[g]);
            if (!(error < best_error)) break;
            best_error = error;
            d = candidate;
            for (int g = 0; g < kGroups; ++g) scale[g] = chosen[g];
            candidate = f16_scale(best_step(block) * block.unit);
            if ((candidate & 0x7fffu) == 0) break;
        }
        encode(block);
    }

  private:
    static constexpr int kRefinements = 2;

    // The integer scale of group g with the least error, near target / step and its mirror image.
    static float choose_scale(const Prepared<kSize>& block, int g, float step, float target, int& chosen) {
        // From one below to two above the scale's floor, and the mirror image of each.
        constexpr float kNear[kLanes] = {-1, 0, 1, 2, 1, 0, -1, -2};
        constexpr float kSign[kLanes] = {1, 1, 1, 1, -1, -1, -1, -1};
        const Lanes lowest(static_cast<float>(kScaleMin)), highest(static_cast<float>(kScaleMax));
        const Lanes wanted = min(max(Lanes(target / step), lowest), highest);
        const Lanes candidates =
            min(max(round(wanted - Lanes(0.5f)) * load(kSign) + load(kNear), lowest), highest);
        const Lanes error = scale_errors<Levels>(block.x + g * kGroupSize, block.w + g * kGroupSize,
                                                 kGroupSize, candidates * Lanes(step));
        const int lane = best_lane(error);
        chosen = static_cast<int>(candidates[lane]);
        return error[lane];
    }

    float group_inverse(float step, int g) const {
        return scale[g] == 0 ? 0.0f : 1.0f / (step * static_cast<float>(scale[g]));
    }

    // d (in units of the block) with the least error for the present scales and the levels they lead to.
    float best_step(const Prepared<kSize>& block) const {
        const float step = f16_to_f32(d) / block.unit;
        double all_xl = 0.0, all_ll = 0.0;
        for (int g = 0; g < kGroups; ++g) {
            const Lanes inverse(group_inverse(step, g));
            Lanes xl(0.0f), ll(0.0f);
            for (int i = g * kGroupSize; i < (g + 1) * kGroupSize; i += kLanes) {
                const Lanes x = load(block.x + i), level = Levels::nearest(x * inverse),
                            weighted = load(block.w + i) * level;
                xl = xl + weighted * x;
                ll = ll + weighted * level;
            }
            const double s = scale[g];
            all_xl += s * sum(xl);
            all_ll += s * s * sum(ll);
        }
        return all_ll > 0.0 ? static_cast<float>(all_xl / all_ll) : 0.0f;
    }

    void encode(const Prepared<kSize>& block) {
        const float step = f16_to_f32(d) / block.unit;
        for (int g = 0; g < kGroups; ++g) {
            const float inverse = group_inverse(step, g);
            for (int i = g * kGroupSize; i < (g + 1) * kGroupSize; ++i)
                code[i] = Levels::code(block.x[i] * inverse);
        }
    }
};

}  // namespace hy3
