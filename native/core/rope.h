// Rotary position embedding: inverse frequencies (plain or YaRN) and the cosines and sines of a step's
// positions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/config.h"

namespace hy3 {

struct RopeFrequencies {
    std::vector<float> inv_freq;  // (head_dim / 2)
    float scale = 1.0f;           // multiplies cosines and sines (YaRN's attention factor)
};

// The table `transformers` computes (modeling_rope_utils.py: default and _compute_yarn_parameters), in
// float32.
RopeFrequencies rope_frequencies(const RopeConfig& config, int head_dim);

// Dimension d of a head is paired with d + head_dim/2 (rotate_half).
struct RopeTable {
    int half = 0;             // head_dim / 2
    std::vector<float> cos_;  // (n, half)
    std::vector<float> sin_;  // (n, half)

    const float* cos(int64_t row) const { return cos_.data() + row * half; }
    const float* sin(int64_t row) const { return sin_.data() + row * half; }
};

// Beyond it not every position is a float32.
inline constexpr int64_t max_rope_position = int64_t{1} << 24;

// The angle is float32(position) * inv_freq, rounded to float32, as in transformers.
void fill_rope_table(const RopeFrequencies& freq, std::span<const int32_t> positions, RopeTable& table);

}  // namespace hy3
