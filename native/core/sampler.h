// Choosing the next token from logits. The draw comes from a counter-based generator keyed by (seed, choice,
// position): the same token comes out however the step before it was computed, drafted or batched.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hy3 {

struct Sampling {
    float temperature = 0.0f;     // 0: the largest logit, the lowest id among equals
    int top_k = 0;                // 0: off
    float top_p = 1.0f;           // 1: off
    float min_p = 0.0f;           // 0: off
    float repeat_penalty = 1.0f;  // 1: off
    uint64_t seed = 0;
    uint32_t choice = 0;  // which of several answers to one prompt
};

// How many of the last tokens the repetition penalty looks at; each distinct one is penalised once.
inline constexpr size_t penalty_window = 64;

// Throws Error(invalid_argument) naming the parameter.
void check_sampling(const Sampling& sampling);

// A number in [0, 1) that depends on nothing but its arguments (Philox4x32-10, Salmon et al. 2011).
double uniform(uint64_t seed, uint32_t choice, uint64_t position);

class Sampler {
  public:
    explicit Sampler(const Sampling& sampling);

    // Order: repetition penalty, temperature, top-k, top-p, min-p, draw. Linear in the vocabulary. `recent`
    // are the tokens so far; `position` is that of the token to be chosen. Throws Error(format) when a logit
    // is NaN.
    int32_t sample(std::span<const float> logits, std::span<const int32_t> recent, uint64_t position);

  private:
    struct Candidate {
        float logit;
        int32_t id;
        double weight;  // exp(logit - largest)
    };

    std::span<const float> penalise(std::span<const float> logits, std::span<const int32_t> recent);
    void collect(std::span<const float> logits);
    void keep_top_p();
    void keep_min_p();
    int32_t draw(uint64_t position);

    const Sampling sampling_;
    std::vector<float> logits_;  // penalised
    std::vector<Candidate> candidates_;
};

}  // namespace hy3
