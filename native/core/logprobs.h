// Log-probabilities of tokens: of raw logits, whatever sampling does with them later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hy3 {

struct TokenLogprob {
    int32_t id;
    float logprob;
};

struct TokenLogprobs {
    float chosen = 0.0f;
    std::vector<TokenLogprob> top;  // the most likely tokens, descending; equal ones by id
};

// log(softmax(logits)[token]), summed in double and in index order.
double log_probability(std::span<const float> logits, int32_t token);

// The same with the `top` most likely tokens beside it.
TokenLogprobs token_logprobs(std::span<const float> logits, int32_t token, int top);

}  // namespace hy3
