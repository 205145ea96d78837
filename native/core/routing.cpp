#include "core/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace hy3 {
namespace {

void to_scores(Gating gating, float* x, int n) {
    if (gating == Gating::sigmoid) {
        for (int i = 0; i < n; i++) x[i] = 1.0f / (1.0f + std::exp(-x[i]));
        return;
    }
    const float largest = *std::max_element(x, x + n);
    float total = 0.0f;
    for (int i = 0; i < n; i++) total += x[i] = std::exp(x[i] - largest);
    for (int i = 0; i < n; i++) x[i] /= total;
}

}  // namespace

void choose_experts(const Config& config, const Floats& bias, float* logits, int32_t* experts,
                    float* weights) {
    const int n = config.n_experts, k = config.n_experts_used;
    to_scores(config.gating, logits, n);
    std::vector<bool> taken(static_cast<size_t>(n));
    for (int i = 0; i < k; i++) {
        int best = -1;
        float best_score = -std::numeric_limits<float>::infinity();
        for (int e = 0; e < n; e++) {
            if (taken[static_cast<size_t>(e)]) continue;
            const float score = bias.size > 0 ? logits[e] + bias.data[e] : logits[e];
            if (best < 0 || score > best_score) {
                best = e;
                best_score = std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
            }
        }
        taken[static_cast<size_t>(best)] = true;
        experts[i] = best;
    }
    std::sort(experts, experts + k);
    float total = 0.0f;
    for (int i = 0; i < k; i++) total += weights[i] = logits[experts[i]];
    const float norm = config.route_norm ? total + 1e-20f : 1.0f;
    for (int i = 0; i < k; i++) weights[i] = weights[i] / norm * config.router_scale;
}

}  // namespace hy3
