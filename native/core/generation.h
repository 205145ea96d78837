// Generating tokens one at a time after a prompt, reusing what the session already holds of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/sampler.h"
#include "core/session.h"
#include "core/speculation.h"

namespace hy3 {

enum class Finish { running, stop, length };

struct GenerationStats {
    int64_t prompt_tokens = 0;
    int64_t reused_tokens = 0;  // of the prompt, found in the session's context
    int64_t generated_tokens = 0;
    double prompt_seconds = 0.0;
    double decode_seconds = 0.0;
    Finish finish = Finish::running;
    int32_t stop_id = -1;  // the end token that was drawn, when finish is stop
};

class Generation {
  public:
    // `prompt` is the whole text so far, what the session holds of it included. The session must outlive
    // this. `jump`: what follows the prompt is that many positions further on (Session::jump).
    Generation(Session& session, std::vector<int32_t> prompt, const Sampling& sampling,
               std::vector<int32_t> stop_ids, int64_t max_tokens, const DraftOptions& drafts = {},
               int64_t jump = 0);

    // For who wants to show progress: evaluates a chunk of the prompt, unless it is the last one, which is
    // next()'s. Returns whether it did. On an error the session is as before the call.
    bool prefill(AbortCheck& abort);

    // The next token, or nothing when an end token was drawn (it is not returned) or max_tokens are out. On
    // an error the session is as before the call, and the call may be repeated.
    std::optional<int32_t> next(AbortCheck& abort);

    const GenerationStats& stats() const { return stats_; }
    const DraftStats& draft_stats() const { return speculation_.stats(); }

  private:
    std::span<const int32_t> left_of_prompt();
    void evaluate_prompt(AbortCheck& abort);
    void evaluate(int32_t token, AbortCheck& abort);

    Session& session_;
    std::vector<int32_t> prompt_;
    Sampler sampler_;
    std::vector<int32_t> stop_ids_;
    int64_t max_tokens_;
    int64_t jump_;
    bool counted_ = false;  // the tokens that were reused
    int draft_depth_;
    Speculation speculation_;
    std::vector<float> logits_;       // of the position after the session's last; empty: not evaluated
    std::optional<int32_t> pending_;  // drawn, but not yet evaluated
    GenerationStats stats_;
};

}  // namespace hy3
