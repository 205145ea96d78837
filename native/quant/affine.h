// Internal to native/quant: the search behind Q2_K, Q4_K and Q5_K, whose groups are x ~ scale * q - offset
// with q in 0..kLevels - 1, scale and offset not negative and themselves integers times the block's d and
// dmin.
//
// For given q the best scale and offset are a 2 x 2 least-squares problem; for given scale and offset the
// best q is the nearest. The search alternates the two from eight starting scales at once, one a lane
// (lanes.h), then looks for the integers near the result, then solves for d and dmin with everything else
// fixed.
#pragma once

#include <algorithm>
#include <cmath>

#include "quant/half.h"
#include "quant/lanes.h"
#include "quant/prepare.h"

namespace hy3 {

struct AffineFit {
    float scale = 0.0f;
    float offset = 0.0f;
    float mean_q = 0.0f;  // weighted: what a change of scale must be balanced with in the offset
};

// `reach`: the starting scales put the group's range at reach * (kLevels - 1) steps.
template <int kLevels>
AffineFit fit_affine(const float* x, const float* w, int n, const Lanes& reach, int rounds) {
    // y = x - low >= 0 keeps the sums free of cancellation. In y the offset is that of the least element or
    // above.
    Lanes lows(0.0f), highs = load(x);
    for (int i = 0; i < n; i += kLanes) {
        lows = min(lows, load(x + i));
        highs = max(highs, load(x + i));
    }
    float low = lows[0], high = highs[0];
    for (int i = 1; i < kLanes; ++i) {
        low = lows[i] < low ? lows[i] : low;
        high = highs[i] > high ? highs[i] : high;
    }
    const float range = high - low;
    if (!(range > 1e-30f)) return {0.0f, -low, 0.0f};
    Lanes sums_w(0.0f), sums_y(0.0f);
    for (int i = 0; i < n; i += kLanes) {
        sums_w = sums_w + load(w + i);
        sums_y = sums_y + load(w + i) * (load(x + i) - Lanes(low));
    }
    const float sum_w = sum(sums_w), sum_y = sum(sums_y);
    const Lanes sw(sum_w), sy(sum_y), top(static_cast<float>(kLevels - 1)), zero(0.0f), highest_start(-low);
    const Lanes inverse_start = reach * Lanes(static_cast<float>(kLevels - 1) / range);
    Lanes inverse = inverse_start, shift = zero;  // q = nearest(y * inverse + shift)
    Lanes scale, start, error, mean;
    for (int round_index = 0; round_index < rounds; ++round_index) {
        Lanes q1 = zero, q2 = zero, qy = zero;
        for (int i = 0; i < n; ++i) {
            const Lanes y(x[i] - low);
            const Lanes q = round(min(max(y * inverse + shift, zero), top));
            const Lanes wq = q * Lanes(w[i]);
            q1 = q1 + wq;
            q2 = q2 + wq * q;
            qy = qy + wq * y;
        }
        // Positive only if q takes at least two values; the margin keeps rounding errors out of the division.
        const Lanes determinant = sw * q2 * Lanes(0.99999f) - q1 * q1;
        const Lanes safe = where_positive(determinant, sw * q2 - q1 * q1, Lanes(1.0f));
        const Lanes free_scale = (sw * qy - sy * q1) / safe;
        const Lanes free_start = (sy - free_scale * q1) / sw;
        // The offset must not be negative: beyond that bound, and where the two cannot be told apart, the
        // bound is kept and the scale alone is fitted. If that is negative the group is best seen as one
        // offset.
        const Lanes bound_scale = (qy - highest_start * q1) / max(q2, Lanes(1e-30f));
        const Lanes is_free = min(determinant, highest_start - free_start);
        scale = max(where_positive(is_free, free_scale, bound_scale), zero);
        start = where_positive(scale, where_positive(is_free, free_start, highest_start),
                               min(sy / sw, highest_start));
        // sum w (y - scale q - start)^2 without its constant part
        error = scale * (scale * q2 - qy - qy) + start * (start * sw - sy - sy) + scale * start * (q1 + q1);
        mean = q1 / sw;
        inverse =
            where_positive(scale, Lanes(1.0f) / where_positive(scale, scale, Lanes(1.0f)), inverse_start);
        shift = where_positive(scale, zero - start * inverse, zero);
    }
    const int lane = best_lane(error);
    return {scale[lane], -(low + start[lane]), mean[lane]};
}

// A super-block: x ~ d * scale[g] * q - dmin * offset[g].
template <int kLevels, int kGroups, int kGroupSize, int kScaleMax>
struct AffineBlock {
    static constexpr int kSize = kGroups * kGroupSize;
    uint16_t d = 0, dmin = 0;  // f16
    int scale[kGroups] = {}, offset[kGroups] = {};
    float q[kSize] = {};

    void fit(const Prepared<kSize>& block, const Lanes& reach, int rounds, const float* fractions,
             int n_fractions) {
        AffineFit target[kGroups];
        float top_scale = 0.0f, top_offset = 0.0f;
        for (int g = 0; g < kGroups; ++g) {
            target[g] = fit_affine<kLevels>(block.x + g * kGroupSize, block.w + g * kGroupSize, kGroupSize,
                                            reach, rounds);
            top_scale = std::max(top_scale, target[g].scale);
            top_offset = std::max(top_offset, target[g].offset);
        }
        float best_error = INFINITY;
        for (int i = 0; i < n_fractions; ++i) {
            AffineBlock attempt;
            attempt.d = stored(top_scale * fractions[i], block.unit);
            attempt.dmin = stored(top_offset * fractions[i], block.unit);
            for (int refinement = 0; refinement < kRefinements; ++refinement) {
                const float error = attempt.choose_integers(block, target);
                if (!(error < best_error)) break;
                best_error = error;
                *this = attempt;
                attempt.encode(block);
                attempt.solve_steps(block);
            }
        }
        encode(block);
    }

  private:
    static constexpr int kRefinements = 2;

    static uint16_t stored(float top, float unit) {
        if (top <= 0.0f) return 0;
        const uint16_t h = f16_scale_reaching(top / static_cast<float>(kScaleMax) * unit,
                                              0.5f / static_cast<float>(kScaleMax));
        return h == 0 ? 1 : h;  // below float16: the smallest step may still serve
    }

    // The integers near the targets with the least error under the present d and dmin; returns that error.
    float choose_integers(const Prepared<kSize>& block, const AffineFit* target) {
        const float step = f16_to_f32(d) / block.unit, offset_step = f16_to_f32(dmin) / block.unit;
        // Two scales around the target, and for each four offsets around the one that keeps the mean.
        constexpr float kScales[kLanes] = {0, 0, 0, 0, 1, 1, 1, 1};
        constexpr float kOffsets[kLanes] = {-1, 0, 1, 2, -1, 0, 1, 2};
        const Lanes zero(0.0f), top(static_cast<float>(kScaleMax)), half(0.5f);
        const float per_step = step > 0.0f ? 1.0f / step : 0.0f;
        const float per_offset = offset_step > 0.0f ? 1.0f / offset_step : 0.0f;
        float total = 0.0f;
        for (int g = 0; g < kGroups; ++g) {
            const AffineFit& t = target[g];
            const Lanes wanted = min(max(Lanes(t.scale * per_step) - half, zero), top);
            const Lanes scales = min(round(wanted) + load(kScales), top);
            const Lanes balanced =
                Lanes(t.offset) + (scales * Lanes(step) - Lanes(t.scale)) * Lanes(t.mean_q);
            const Lanes wanted_offset = min(max(balanced * Lanes(per_offset) - half, zero), top);
            const Lanes offsets = min(max(round(wanted_offset) + load(kOffsets), zero), top);
            const Lanes error = group_errors(block.x + g * kGroupSize, block.w + g * kGroupSize,
                                             scales * Lanes(step), offsets * Lanes(offset_step));
            const int lane = best_lane(error);
            scale[g] = static_cast<int>(scales[lane]);
            offset[g] = static_cast<int>(offsets[lane]);
            total += error[lane];
        }
        return total;
    }

    static Lanes group_errors(const float* x, const float* w, const Lanes& scale, const Lanes& offset) {
        const Lanes zero(0.0f), top(static_cast<float>(kLevels - 1));
        const Lanes inverse =
            where_positive(scale, Lanes(1.0f) / where_positive(scale, scale, Lanes(1.0f)), zero);
        Lanes error = zero;
        for (int i = 0; i < kGroupSize; ++i) {
            const Lanes shifted = Lanes(x[i]) + offset;
            const Lanes miss = shifted - scale * round(min(max(shifted * inverse, zero), top));
            error = error + miss * miss * Lanes(w[i]);
        }
        return error;
    }

    // d and dmin by least squares for the present integers and q.
    void solve_steps(const Prepared<kSize>& block) {
        double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
        for (int g = 0; g < kGroups; ++g) {
            Lanes q1(0.0f), q2(0.0f), qx(0.0f), sw(0.0f), sx(0.0f);
            for (int i = g * kGroupSize; i < (g + 1) * kGroupSize; i += kLanes) {
                const Lanes x = load(block.x + i), w = load(block.w + i), level = load(q + i), wq = w * level;
                sw = sw + w;
                sx = sx + w * x;
                q1 = q1 + wq;
                q2 = q2 + wq * level;
                qx = qx + wq * x;
            }
            const double a = scale[g], b = offset[g];
            aa += a * a * sum(q2);
            ab += a * b * sum(q1);
            bb += b * b * sum(sw);
            ax += a * sum(qx);
            bx += b * sum(sx);
        }
        // x ~ d a q - dmin b
        const double determinant = aa * bb - ab * ab;
        double new_d = f16_to_f32(d) / block.unit, new_dmin = f16_to_f32(dmin) / block.unit;
        if (determinant > 1e-9 * aa * bb) {
            new_d = (ax * bb - ab * bx) / determinant;
            new_dmin = (ab * ax - aa * bx) / determinant;
        } else if (aa > 0.0) {
            new_d = (ax + new_dmin * ab) / aa;
        }
        if (new_d > 0.0) d = f16_scale(static_cast<float>(new_d) * block.unit);
        if (new_dmin > 0.0) dmin = f16_scale(static_cast<float>(new_dmin) * block.unit);
    }

    void encode(const Prepared<kSize>& block) {
        const float step = f16_to_f32(d) / block.unit, offset_step = f16_to_f32(dmin) / block.unit;
        for (int g = 0; g < kGroups; ++g) {
            const float group_step = step * static_cast<float>(scale[g]);
            const float inverse = group_step > 0.0f ? 1.0f / group_step : 0.0f;
            const Lanes shift(offset_step * static_cast<float>(offset[g]));
            const Lanes zero(0.0f), top(static_cast<float>(kLevels - 1));
            for (int i = g * kGroupSize; i < (g + 1) * kGroupSize; i += kLanes) {
                const Lanes v = (load(block.x + i) + shift) * Lanes(inverse);
                store(q + i, round(min(max(v, zero), top)));
            }
        }
    }
};

}  // namespace hy3
