// The choice of experts from the router's logits, the same for every backend that routes on the host.
#pragma once

#include <cstdint>

#include "core/config.h"
#include "core/weights.h"

namespace hy3 {

// logits (n_experts): the router's products, overwritten. experts (n_experts_used), ascending, and their
// weights: chosen by score + bias (equal ones: the lower index wins), weighed by the score alone. Never
// fails, whatever the numbers are; a NaN is not chosen while there is another.
void choose_experts(const Config& config, const Floats& bias, float* logits, int32_t* experts,
                    float* weights);

}  // namespace hy3
