// What a request changes about the logits before its sampler sees them: biases of single tokens, penalties on
// what it has written already, and a mask of the tokens that its grammar allows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hy3 {

// Sets the bit of each token that may follow `generated`: token i is bit i % 32 of allowed[i / 32], all zero
// before the call. Throws what shall end the generation.
using Mask = std::function<void(std::span<const int32_t> generated, std::span<uint32_t> allowed)>;

struct TokenBias {
    int32_t id;
    float bias;
};

struct ShapingOptions {
    std::vector<TokenBias> bias;     // added
    float presence_penalty = 0.0f;   // taken off the logits of tokens that were generated
    float frequency_penalty = 0.0f;  // taken off once for each time
    Mask mask;                       // empty: every token is allowed
};

class Shaping {
  public:
    // Throws Error(invalid_argument) naming the parameter.
    Shaping(ShapingOptions options, size_t vocab);

    // Order: bias, penalties, mask. What is not allowed gets the lowest float, so that the rest stays finite.
    // The result lives until the next call, or is `logits` when there is nothing to do.
    std::span<const float> apply(std::span<const float> logits, std::span<const int32_t> generated);

  private:
    void penalise(std::span<const int32_t> generated);
    void hide(std::span<const int32_t> generated);

    const ShapingOptions options_;
    std::vector<float> logits_;
    std::vector<uint32_t> allowed_;
};

}  // namespace hy3
