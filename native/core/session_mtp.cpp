// A session's side of speculation: rows of the MTP layer, and guesses that become tokens.
#include <algorithm>

#include "core/error.h"
#include "core/session.h"

namespace hy3 {

bool Session::accept(int32_t token) {
    if (guesses_.empty() || guesses_.front() != token) {
        guesses_.clear();
        return false;
    }
    const auto end = guess_states_.begin() + static_cast<int64_t>(width());
    states_.insert(states_.end(), guess_states_.begin(), end);
    tokens_.push_back(token);  // the step that evaluated the guesses made room
    guess_states_.erase(guess_states_.begin(), end);
    guesses_.erase(guesses_.begin());
    mtp_token_ = -1;
    return true;
}

// The MTP layer's rows still to be written, but for the last position's.
std::vector<Row> Session::mtp_rows_behind() const {
    std::vector<Row> rows;
    for (int64_t at = position() - kept(); at < position() - 1; at++)
        rows.push_back(row(tokens_[static_cast<size_t>(at) + 1], at));
    return rows;
}

// Called during a turn.
void Session::write_mtp_behind(Forward& forward) {
    const std::vector<Row> rows = mtp_rows_behind();
    const size_t size = rows.size() * width();
    cache_.prepare(rows.front().position, static_cast<int64_t>(rows.size()));
    Buffer states(model_->backend());
    float* input = states.get<float>(static_cast<int64_t>(size));
    model_->backend().upload(input, states_.data(), size * sizeof(float));
    const KvCache* cache = &cache_;
    forward.mtp(rows, {&cache, 1}, input);
    states_.erase(states_.begin(), states_.begin() + static_cast<int64_t>(size));
}

// Runs rows of the MTP layer; the logits and the layer's own state of the last of them.
std::vector<float> Session::run_mtp(std::span<const Row> rows, std::span<const float> states, float* logits,
                                    AbortCheck& abort) {
    if (!options_.mtp)
        fail(Status::invalid_argument, "The session was made without mtp. Make it with mtp=True.");
    const int vocab = model_->config().vocab;
    const int32_t token = rows.back().token;
    if (token < 0 || token >= vocab)
        fail(Status::invalid_argument, "Token ", token, " is outside the vocabulary of ", vocab, ".");
    cache_.prepare(rows.front().position, static_cast<int64_t>(rows.size()));
    Backend& backend = model_->backend();
    Model::Turn turn(*model_, abort);
    Buffer buffer(backend);
    float* input = buffer.get<float>(static_cast<int64_t>(states.size()));
    backend.upload(input, states.data(), states.size_bytes());
    const KvCache* cache = &cache_;
    const float* out = turn.forward().mtp(rows, {&cache, 1}, input);
    const auto last = static_cast<int64_t>(rows.size()) - 1;
    turn.forward().mtp_head({&last, 1}, out, {&logits, 1});
    std::vector<float> state(width());
    backend.download(state.data(), out + static_cast<size_t>(last) * width(), width() * sizeof(float));
    return state;
}

std::vector<float> Session::mtp_logits(int32_t token, float* logits, AbortCheck& abort) {
    require_state();
    std::vector<Row> rows = mtp_rows_behind();
    mtp_token_ = -1;
    rows.push_back(row(token, position() - 1));
    auto state = run_mtp(rows, states_, logits, abort);
    states_.erase(states_.begin(), states_.end() - static_cast<int64_t>(width()));
    mtp_token_ = token;
    return state;
}

std::vector<float> Session::mtp_chain(int depth, int32_t token, std::span<const float> state, float* logits,
                                      AbortCheck& abort) {
    const Row ahead = row(token, position() + depth - 2);
    return run_mtp({&ahead, 1}, state, logits, abort);
}

}  // namespace hy3
