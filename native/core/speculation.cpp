#include "core/speculation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/error.h"

namespace hy3 {
namespace {

// Public measurements of Hy3 find no use in more than 2 or 3.
constexpr int usual_depth = 4;

class Clock {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

  private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// softmax(logits / temperature)[id]; greedy choice counts as temperature 1. Logits far below the largest do
// not matter for an estimate, and are most of a vocabulary.
double probability(std::span<const float> logits, int32_t id, double temperature) {
    const float scale = temperature > 0.0 ? static_cast<float>(1.0 / temperature) : 1.0f;
    const float largest = *std::max_element(logits.begin(), logits.end());
    const float far = largest - 16.0f / scale;
    float total = 0.0f;
    for (const float x : logits)
        if (x > far) total += std::exp((x - largest) * scale);
    return std::exp((logits[static_cast<size_t>(id)] - largest) * scale) / total;
}

}  // namespace

int draft_depth(const SessionOptions& session, const DraftOptions& options) {
    const int depth = options.depth;
    if (depth == DraftOptions::by_cost) return session.mtp ? usual_depth : 0;
    if (depth < 0 || depth > DraftPolicy::max_depth)
        fail(Status::invalid_argument, "mtp is ", depth,
             ". Give the most tokens to draft at once, from 0 to ", DraftPolicy::max_depth,
             ", or -1 for as many as pay.");
    if (depth > 0 && !session.mtp)
        fail(Status::invalid_argument, "mtp is ", depth,
             ", and the session was made without mtp. Make it with mtp=True.");
    return depth;
}

Speculation::Speculation(Session& session, const Sampling& sampling, Shaping& shaping, int depth, bool always)
    : session_(&session),
      sampler_(sampling),
      shaping_(shaping),
      temperature_(sampling.temperature),
      depth_(depth),
      always_(always) {
    stats_.by_depth.resize(static_cast<size_t>(depth));
}

void Speculation::advance(std::span<const int32_t> generated, int64_t useful, float* logits,
                          AbortCheck& abort) {
    if (use_draft(generated.back(), logits)) return;
    // Each guess takes a place in the context after the token, and the last draft's logits give one token
    // more.
    const int64_t room = session_->options().ctx - session_->position() - 1;
    draft(generated, static_cast<int>(std::min<int64_t>({depth_, room, useful - 1})), abort);
    verify(generated.back(), abort);
    copy_row(logits);
}

bool Speculation::use_draft(int32_t token, float* logits) {
    if (session_->revision() != revision_ || !session_->accept(token)) return false;
    row_++;
    copy_row(logits);
    return true;
}

void Speculation::copy_row(float* logits) const {
    const auto vocab = static_cast<int64_t>(session_->model().config().vocab);
    std::copy_n(logits_.begin() + static_cast<int64_t>(row_) * vocab, vocab, logits);
}

void Speculation::draft(std::span<const int32_t> generated, int limit, AbortCheck& abort) {
    DraftPolicy& policy = session_->draft_policy();
    const int64_t position = session_->position();  // of `token`
    const auto& text = session_->tokens();
    std::vector<int32_t> recent(text.end() - std::min<int64_t>(position, penalty_window), text.end());
    recent.push_back(generated.back());
    std::vector<int32_t> written(generated.begin(), generated.end());
    int32_t token = generated.back();
    drafts_.clear();
    evaluated_ = judged_ = 0;
    draft_logits_.resize(static_cast<size_t>(session_->model().config().vocab));
    if (!session_->has_hidden()) return;  // someone truncated the session in between
    std::vector<float> state;
    double reach = 1.0;
    for (int depth = 1; depth <= limit; depth++) {
        if (!always_ && !policy.worth_drafting(depth, reach, limit)) return;
        const Clock clock;
        state = depth == 1 ? session_->mtp_logits(token, draft_logits_.data(), abort)
                           : session_->mtp_chain(depth, token, state, draft_logits_.data(), abort);
        // Weights that overflow spoil drafts, not the text.
        if (!std::all_of(draft_logits_.begin(), draft_logits_.end(),
                         [](float x) { return std::isfinite(x); }))
            return;
        std::span<const float> shaped;
        try {
            shaped = shaping_.apply(draft_logits_, written);
        } catch (const Error&) {
            return;  // nothing may follow the draft before; should it be right, drawing says what is wrong
        }
        token = sampler_.sample(shaped, recent, static_cast<uint64_t>(position + depth));
        const double p = probability(shaped, token, temperature_);
        recent.push_back(token);
        written.push_back(token);
        drafts_.push_back({token, p});
        policy.drafted(depth, clock.seconds());
        reach *= policy.chance(depth, p);
        if (!always_ && !policy.worth_verifying(depth, reach, limit)) return;
        evaluated_ = drafts_.size();
    }
}

void Speculation::verify(int32_t token, AbortCheck& abort) {
    std::vector<int32_t> tokens{token};
    for (size_t i = 0; i < evaluated_; i++) tokens.push_back(drafts_[i].token);
    logits_.resize(tokens.size() * static_cast<size_t>(session_->model().config().vocab));
    const StepItem item{session_, tokens, Logits::all, logits_.data(), true};
    const Clock clock;
    step({&item, 1}, abort);
    session_->draft_policy().verified(static_cast<int>(tokens.size()), clock.seconds());
    revision_ = session_->revision();
    row_ = 0;
    stats_.drafted += static_cast<int64_t>(evaluated_);
}

void Speculation::drawn(int32_t token) {
    if (judged_ >= drafts_.size()) return;
    const Draft& draft = drafts_[judged_];
    const bool right = draft.token == token;
    session_->draft_policy().judged(static_cast<int>(judged_) + 1, draft.p, right);
    if (judged_ < evaluated_) {
        stats_.by_depth[judged_].judged++;
        stats_.by_depth[judged_].right += right;
        stats_.accepted += right;
    }
    judged_ = right ? judged_ + 1 : drafts_.size();
}

}  // namespace hy3
