#include "core/shaping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"

namespace hy3 {

Shaping::Shaping(ShapingOptions options, size_t vocab) : options_(std::move(options)) {
    for (const TokenBias& b : options_.bias) {
        if (b.id < 0 || static_cast<size_t>(b.id) >= vocab)
            fail(Status::invalid_argument, "logit_bias names token ", b.id,
                 ", which is outside the vocabulary of ", vocab, ".");
        if (!std::isfinite(b.bias))
            fail(Status::invalid_argument, "logit_bias of token ", b.id, " is ", b.bias,
                 ". Give a finite number.");
    }
    const auto check = [](const char* name, float value) {
        if (!(value >= -100.0f && value <= 100.0f))
            fail(Status::invalid_argument, name, " is ", value,
                 ". Give a number from -100 to 100; 0 is off.");
    };
    check("presence_penalty", options_.presence_penalty);
    check("frequency_penalty", options_.frequency_penalty);
}

std::span<const float> Shaping::apply(std::span<const float> logits, std::span<const int32_t> generated) {
    const bool penalties = options_.presence_penalty != 0.0f || options_.frequency_penalty != 0.0f;
    if (options_.bias.empty() && !penalties && !options_.mask) return logits;
    logits_.assign(logits.begin(), logits.end());
    for (const TokenBias& b : options_.bias) logits_[static_cast<size_t>(b.id)] += b.bias;
    if (penalties) penalise(generated);
    if (options_.mask) hide(generated);
    return logits_;
}

void Shaping::penalise(std::span<const int32_t> generated) {
    std::vector<int32_t> ids(generated.begin(), generated.end());
    std::sort(ids.begin(), ids.end());
    for (auto first = ids.begin(); first != ids.end();) {
        const auto last = std::upper_bound(first, ids.end(), *first);
        logits_[static_cast<size_t>(*first)] -=
            options_.presence_penalty + options_.frequency_penalty * static_cast<float>(last - first);
        first = last;
    }
}

void Shaping::hide(std::span<const int32_t> generated) {
    allowed_.assign((logits_.size() + 31) / 32, 0);
    options_.mask(generated, allowed_);
    bool any = false;
    for (size_t i = 0; i < logits_.size(); i++) {
        const bool allowed = (allowed_[i / 32] >> (i % 32) & 1) != 0;
        any |= allowed;
        if (!allowed) logits_[i] = std::numeric_limits<float>::lowest();
    }
    if (!any)
        fail(Status::invalid_argument, "The grammar allows no token after ", generated.size(),
             " generated ones. Loosen it.");
}

}  // namespace hy3
