// Generating tokens one at a time after a prompt, reusing what the session already holds of it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/sampler.h"
#include "core/session.h"
#include "core/shaping.h"
#include "core/speculation.h"

namespace hy3 {

enum class Finish { running, stop, length };

struct GenerationOptions {
    Sampling sampling;
    std::vector<int32_t> stop_ids;
    int64_t max_tokens = 0;
    DraftOptions drafts;
    int64_t jump = 0;  // what follows the prompt is that many positions further on (Session::jump)
    ShapingOptions shaping;
};

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
    // this.
    Generation(Session& session, std::vector<int32_t> prompt, GenerationOptions options);
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    // For who wants to show progress: evaluates a chunk of the prompt, unless it is the last one, which is
    // next()'s. Returns whether it did. On an error the session is as before the call.
    bool prefill(AbortCheck& abort);

    // The next token, or nothing when an end token was drawn (it is not returned) or max_tokens are out. On
    // an error the session is as before the call, and the call may be repeated.
    std::optional<int32_t> next(AbortCheck& abort);

    // next() in parts, for steps that several generations share: until ready(), evaluate work() and tell
    // done(); then draw().
    bool ready() const { return ready_; }
    // What is still to be evaluated of the text so far; at least its last token.
    std::span<const int32_t> left();
    // The first `rows` of it, 1 or more.
    StepItem work(int64_t rows);
    void done(const StepItem& item);
    // Makes it ready if the last step evaluated the one token that is left, as a right guess.
    bool use_draft();
    // The same as work, step and done when one token is left, with the drafts that the options allow. Alone
    // in its step.
    void advance(AbortCheck& abort);
    // Not when finished().
    std::optional<int32_t> draw();
    bool finished() const {
        return stats_.finish != Finish::running || stats_.generated_tokens >= max_tokens_;
    }

    // Goes on in another session, whatever that holds.
    void move_to(Session& session);

    // The prompt and what was generated.
    const std::vector<int32_t>& text() const { return text_; }
    // (vocab), those that the last token was drawn from.
    std::span<const float> logits() const { return logits_; }
    int draft_depth() const { return draft_depth_; }
    const GenerationStats& stats() const { return stats_; }
    const DraftStats& draft_stats() const { return speculation_.stats(); }

  private:
    std::span<const int32_t> generated() const {
        return std::span(text_).subspan(static_cast<size_t>(stats_.prompt_tokens));
    }
    void evaluate_prompt(AbortCheck& abort);

    Session* session_;
    std::vector<int32_t> text_;
    Sampler sampler_;
    Shaping shaping_;
    std::vector<int32_t> stop_ids_;
    int64_t max_tokens_;
    int64_t jump_;
    bool counted_ = false;  // the tokens that were reused
    // The session's after the last step here. Another one tells that somebody else used it.
    std::optional<uint64_t> revision_;
    int draft_depth_;
    Speculation speculation_;
    std::vector<float> logits_;
    bool ready_ = false;  // logits_ are those after the text
    GenerationStats stats_;
};

}  // namespace hy3
