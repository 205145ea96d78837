// Speculation: the MTP layer drafts the next tokens, one step evaluates them all, and those that sampling
// draws anyway cost no step of their own. Drafts are only guesses: what is drawn, and what the session holds
// after each token, is the same with and without them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/sampler.h"
#include "core/session.h"
#include "core/shaping.h"

namespace hy3 {

struct DraftOptions {
    static constexpr int by_cost = -1;
    int depth = 0;        // the most drafts at once; 0: none; by_cost: a few, none for a session without mtp
    bool always = false;  // to the full depth every time, whether it pays or not: for measuring
};

struct DraftStats {
    struct Depth {
        int64_t judged = 0;  // drafts that came to the test: all before them in their step were right
        int64_t right = 0;
    };
    int64_t drafted = 0;  // evaluated
    int64_t accepted = 0;
    std::vector<Depth> by_depth;
};

class Speculation {
  public:
    // depth from 0 to DraftPolicy::max_depth. The session and the shaping of the tokens must outlive this.
    Speculation(Session& session, const Sampling& sampling, Shaping& shaping, int depth, bool always);

    // Appends the last of the `generated` tokens to the session and gives the logits (vocab) after it, as a
    // step would. `useful`: how many tokens more will be asked for at most. On an error the session is as
    // before.
    void advance(std::span<const int32_t> generated, int64_t useful, float* logits, AbortCheck& abort);

    // The same for `token` when the last step evaluated it as a draft; if it did not, returns false.
    bool use_draft(int32_t token, float* logits);

    // What was drawn from the last logits.
    void drawn(int32_t token);

    const DraftStats& stats() const { return stats_; }

    // Goes on in another session of the same model and options.
    void move_to(Session& session) {
        session_ = &session;
        revision_ = 0;
    }

  private:
    struct Draft {
        int32_t token;
        double p;  // that the MTP layer gives it
    };

    void draft(std::span<const int32_t> generated, int limit, AbortCheck& abort);
    void verify(int32_t token, AbortCheck& abort);

    void copy_row(float* logits) const;

    Session* session_;
    Sampler sampler_;
    Shaping& shaping_;
    const double temperature_;
    const int depth_;
    const bool always_;
    std::vector<Draft> drafts_;  // of the last step, and perhaps one that was not worth evaluating
    size_t evaluated_ = 0;       // how many of them the step evaluated
    size_t judged_ = 0;          // how many of them turned out right so far; all, after a wrong one
    uint64_t revision_ = 0;      // the session's after the step
    std::vector<float> logits_;  // (1 + evaluated, vocab)
    size_t row_ = 0;             // of logits_, that of the session's last token
    std::vector<float> draft_logits_;
    DraftStats stats_;
};

// The depth that the options come to for a session. Throws Error(invalid_argument).
int draft_depth(const SessionOptions& session, const DraftOptions& options);

}  // namespace hy3
