#include "core/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hy3 {
namespace {

// log(sum(exp(logits))).
double log_total(std::span<const float> logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0.0;
    for (const float x : logits) total += std::exp(static_cast<double>(x) - largest);
    return largest + std::log(total);
}

}  // namespace

double log_probability(std::span<const float> logits, int32_t token) {
    return static_cast<double>(logits[static_cast<size_t>(token)]) - log_total(logits);
}

TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top) {
    const double total = log_total(logits);
    const auto of = [&](int32_t id) {
        return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - total);
    };
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto end = ids.begin() + std::min<int64_t>(top, static_cast<int64_t>(ids.size()));
    std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
        const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
        return x != y ? x > y : a < b;
    });
    TokenLogprobs out{of(token), {}};
    for (auto id = ids.begin(); id != end; ++id) out.top.push_back({*id, of(*id)});
    return out;
}

}  // namespace hy3
