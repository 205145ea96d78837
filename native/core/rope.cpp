#include "core/rope.h"

#include <algorithm>
#include <cmath>

namespace hy3 {
namespace {

constexpr double pi = 3.14159265358979323846;

// The dimension whose wavelength makes `rotations` turns within the original context.
double correction_dim(double rotations, int head_dim, double theta, double original_ctx) {
    return head_dim * std::log(original_ctx / (rotations * 2.0 * pi)) / (2.0 * std::log(theta));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeConfig& config, int head_dim) {
    const int half = head_dim / 2;
    RopeFrequencies out;
    out.inv_freq.resize(static_cast<size_t>(half));
    std::vector<float> period(static_cast<size_t>(half));  // theta^(2i/d), rounded once as torch's pow does
    for (int i = 0; i < half; i++) {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
        period[static_cast<size_t>(i)] =
            static_cast<float>(std::pow(static_cast<double>(config.theta), static_cast<double>(exponent)));
        out.inv_freq[static_cast<size_t>(i)] = 1.0f / period[static_cast<size_t>(i)];
    }
    if (config.attention_factor > 0.0f) out.scale = config.attention_factor;
    if (config.factor <= 1.0f) return out;

    // YaRN: frequencies that turn often within the original context stay (extrapolated), slow ones are
    // divided by the factor (interpolated), with a linear ramp between.
    const auto ctx = static_cast<double>(config.original_ctx);
    double low = std::floor(correction_dim(config.beta_fast, head_dim, config.theta, ctx));
    double high = std::ceil(correction_dim(config.beta_slow, head_dim, config.theta, ctx));
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(head_dim - 1));
    if (low == high) high += 0.001;  // as transformers: no division by zero
    for (int i = 0; i < half; i++) {
        const auto at = static_cast<size_t>(i);
        const float ramp = std::clamp(
            (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
        const float keep = 1.0f - ramp;
        const float interpolated = 1.0f / (config.factor * period[at]);
        out.inv_freq[at] = interpolated * (1.0f - keep) + out.inv_freq[at] * keep;
    }
    if (config.attention_factor <= 0.0f)
        out.scale = static_cast<float>(0.1 * std::log(static_cast<double>(config.factor)) + 1.0);
    return out;
}

void fill_rope_table(const RopeFrequencies& freq, std::span<const int32_t> positions, RopeTable& table) {
    table.half = static_cast<int>(freq.inv_freq.size());
    const size_t size = positions.size() * freq.inv_freq.size();
    table.cos_.resize(size);
    table.sin_.resize(size);
    size_t at = 0;
    for (const int32_t position : positions) {
        for (const float inv_freq : freq.inv_freq) {
            const float angle = static_cast<float>(position) * inv_freq;
            table.cos_[at] = std::cos(angle) * freq.scale;
            table.sin_[at] = std::sin(angle) * freq.scale;
            at++;
        }
    }
}

}  // namespace hy3
