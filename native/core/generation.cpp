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

Generation::Generation(Session& session, std::vector<int32_t> prompt, GenerationOptions options)
    : session_(&session),
      text_(std::move(prompt)),
      sampler_(options.sampling),
      shaping_(std::move(options.shaping), static_cast<size_t>(session.model().config().vocab)),
      stop_ids_(std::move(options.stop_ids)),
      max_tokens_(options.max_tokens),
      jump_(options.jump),
      draft_depth_(hy3::draft_depth(session.options(), options.drafts)),
      speculation_(session, options.sampling, shaping_, draft_depth_, options.drafts.always) {
    if (text_.empty()) fail(Status::invalid_argument, "The prompt has no tokens. Give at least one.");
    if (max_tokens_ < 0) fail(Status::invalid_argument, "max_tokens is ", max_tokens_, ". Give 0 or more.");
    stats_.prompt_tokens = static_cast<int64_t>(text_.size());
}

// Keeps the longest common prefix of the context and the text, but for the text's last token, since the
// logits after it are wanted. What came after a position jump is not the text's prefix, even where its tokens
// are.
std::span<const int32_t> Generation::left() {
    if (revision_ != session_->revision()) {
        const auto& have = session_->tokens();
        const auto differ = std::mismatch(have.begin(), have.end(), text_.begin(), text_.end()).first;
        const auto size = static_cast<int64_t>(text_.size()), ctx = session_->options().ctx;
        const auto common = std::min({differ - have.begin(), session_->tokens_before_jumps(), size - 1});
        if (size > ctx)
            fail(Status::context_full, "The prompt has ", size, " tokens and the context holds ", ctx,
                 ". Use a larger context or a shorter prompt.");
        session_->truncate(common);
        session_->check_jump(jump_);
        if (!counted_) stats_.reused_tokens = common;
        counted_ = true;
        if (common == stats_.prompt_tokens) session_->jump(jump_);
        revision_ = session_->revision();
    }
    return std::span(text_).subspan(static_cast<size_t>(session_->position()));
}

StepItem Generation::work(int64_t rows) {
    auto tokens = left();
    // A jump comes between the prompt and what follows it.
    const int64_t before_jump = stats_.prompt_tokens - session_->position();
    if (jump_ > 0 && before_jump > 0) rows = std::min(rows, before_jump);
    const bool all = rows >= static_cast<int64_t>(tokens.size());
    if (all) logits_.resize(static_cast<size_t>(session_->model().config().vocab));
    if (!all) tokens = tokens.first(static_cast<size_t>(rows));
    return {session_, tokens, all ? Logits::last : Logits::none, all ? logits_.data() : nullptr};
}

void Generation::done(const StepItem& item) {
    ready_ = item.wanted == Logits::last;
    if (session_->position() == stats_.prompt_tokens) session_->jump(jump_);
    revision_ = session_->revision();
}

bool Generation::use_draft() {
    if (ready_ || draft_depth_ == 0 || revision_ != session_->revision()) return ready_;
    ready_ = left().size() == 1 && speculation_.use_draft(text_.back(), logits_.data());
    return ready_;
}

void Generation::advance(AbortCheck& abort) {
    // Drafts come after a token that was drawn. All of a prompt but its last token may be there already.
    if (draft_depth_ == 0 || left().size() > 1 || generated().empty()) {
        while (!ready_) {
            const StepItem item = work(static_cast<int64_t>(text_.size()));
            step({&item, 1}, abort);
            done(item);
        }
        return;
    }
    if (use_draft()) return;
    speculation_.advance(generated(), max_tokens_ - stats_.generated_tokens, logits_.data(), abort);
    ready_ = true;
    revision_ = session_->revision();
}

bool Generation::prefill(AbortCheck& abort) {
    if (ready_ || stats_.generated_tokens > 0) return false;
    const Stopwatch watch(stats_.prompt_seconds);
    const StepItem item = work(session_->options().chunk);
    if (item.wanted == Logits::last) return false;
    step({&item, 1}, abort);
    done(item);
    return true;
}

void Generation::evaluate_prompt(AbortCheck& abort) {
    const Stopwatch watch(stats_.prompt_seconds);
    const StepItem item = work(stats_.prompt_tokens);
    step({&item, 1}, abort);
    done(item);
}

std::optional<int32_t> Generation::next(AbortCheck& abort) {
    if (stats_.finish != Finish::running) return std::nullopt;
    if (!ready_ && stats_.generated_tokens == 0) evaluate_prompt(abort);
    if (stats_.generated_tokens >= max_tokens_) {
        stats_.finish = Finish::length;
        return std::nullopt;
    }
    const Stopwatch watch(stats_.decode_seconds);
    if (!ready_) advance(abort);
    return draw();
}

std::optional<int32_t> Generation::draw() {
    const int32_t token =
        sampler_.sample(shaping_.apply(logits_, generated()), text_, static_cast<uint64_t>(text_.size()));
    speculation_.drawn(token);
    if (std::find(stop_ids_.begin(), stop_ids_.end(), token) != stop_ids_.end()) {
        stats_.finish = Finish::stop;
        stats_.stop_id = token;
        return std::nullopt;
    }
    text_.push_back(token);
    ready_ = false;
    stats_.generated_tokens++;
    return token;
}

void Generation::move_to(Session& session) {
    session_ = &session;
    speculation_.move_to(session);
    revision_.reset();
}

}  // namespace hy3
