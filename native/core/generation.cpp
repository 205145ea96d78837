#include "core/generation.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/error.h"

namespace hy3 {
namespace {

// Adds the time it lives to `seconds`.
class Stopwatch {
  public:
    explicit Stopwatch(double& seconds) : seconds_(seconds), begin_(std::chrono::steady_clock::now()) {}
    ~Stopwatch() {
        seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;

  private:
    double& seconds_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace

Generation::Generation(Session& session, std::vector<int32_t> prompt, const Sampling& sampling,
                       std::vector<int32_t> stop_ids, int64_t max_tokens, const DraftOptions& drafts,
                       int64_t jump)
    : session_(session),
      prompt_(std::move(prompt)),
      sampler_(sampling),
      stop_ids_(std::move(stop_ids)),
      max_tokens_(max_tokens),
      jump_(jump),
      draft_depth_(draft_depth(session, drafts)),
      speculation_(session, sampling, draft_depth_, drafts.always) {
    if (prompt_.empty()) fail(Status::invalid_argument, "The prompt has no tokens. Give at least one.");
    if (max_tokens_ < 0) fail(Status::invalid_argument, "max_tokens is ", max_tokens_, ". Give 0 or more.");
    stats_.prompt_tokens = static_cast<int64_t>(prompt_.size());
}

// Keeps the longest common prefix of the context and the prompt, and returns what is to be evaluated: at
// least the last token, since its logits are wanted. What came after a position jump is not the prompt's
// prefix, even where its tokens are.
std::span<const int32_t> Generation::left_of_prompt() {
    const auto& have = session_.tokens();
    const auto differ = std::mismatch(have.begin(), have.end(), prompt_.begin(), prompt_.end()).first;
    const auto common =
        std::min({differ - have.begin(), session_.tokens_before_jumps(), stats_.prompt_tokens - 1});
    const int64_t ctx = session_.options().ctx;
    if (stats_.prompt_tokens > ctx)
        fail(Status::context_full, "The prompt has ", stats_.prompt_tokens, " tokens and the context holds ",
             ctx, ". Use a larger context or a shorter prompt.");
    session_.truncate(common);
    session_.check_jump(jump_);
    if (!counted_) stats_.reused_tokens = common;
    counted_ = true;
    return std::span(prompt_).subspan(static_cast<size_t>(common));
}

bool Generation::prefill(AbortCheck& abort) {
    if (!logits_.empty()) return false;
    const Stopwatch watch(stats_.prompt_seconds);
    const auto left = left_of_prompt();
    const auto chunk = static_cast<size_t>(session_.options().chunk);
    if (left.size() <= chunk) return false;
    const StepItem item{&session_, left.first(chunk), Logits::none, nullptr};
    step({&item, 1}, abort);
    return true;
}

void Generation::evaluate_prompt(AbortCheck& abort) {
    const Stopwatch watch(stats_.prompt_seconds);
    std::vector<float> logits(static_cast<size_t>(session_.model().config().vocab));
    const StepItem item{&session_, left_of_prompt(), Logits::last, logits.data()};
    step({&item, 1}, abort);
    session_.jump(jump_);
    logits_ = std::move(logits);
}

void Generation::evaluate(int32_t token, AbortCheck& abort) {
    if (draft_depth_ > 0) {
        speculation_.advance(token, max_tokens_ - stats_.generated_tokens, logits_.data(), abort);
        return;
    }
    const StepItem item{&session_, {&token, 1}, Logits::last, logits_.data()};
    step({&item, 1}, abort);
}

std::optional<int32_t> Generation::next(AbortCheck& abort) {
    if (stats_.finish != Finish::running) return std::nullopt;
    if (logits_.empty()) evaluate_prompt(abort);
    if (stats_.generated_tokens >= max_tokens_) {
        stats_.finish = Finish::length;
        return std::nullopt;
    }
    const Stopwatch watch(stats_.decode_seconds);
    if (pending_) {
        evaluate(*pending_, abort);
        pending_.reset();
    }
    const int32_t token =
        sampler_.sample(logits_, session_.tokens(), static_cast<uint64_t>(session_.position()));
    speculation_.drawn(token);
    if (std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) {
        stats_.finish = Finish::stop;
        stats_.stop_id = token;
        return std::nullopt;
    }
    pending_ = token;
    stats_.generated_tokens++;
    return token;
}

}  // namespace hy3
