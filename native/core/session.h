// A session: one sequence of tokens with its key/value cache, and the step that evaluates tokens of one or
// several sessions together. A session belongs to one thread at a time; its model may be shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv_cache.h"
#include "core/model.h"

namespace hy3 {

struct SessionOptions {
    int64_t ctx = 0;  // positions; 0: the model's own context
    KvType kv = KvType::f16;
    int chunk = 512;   // rows of a prompt computed at once
    bool mtp = false;  // keep the MTP layer's cache in step
};

class Session {
  public:
    Session(std::shared_ptr<Model> model, const SessionOptions& options);

    // A second session with the same content; pages are shared until one of them writes.
    std::unique_ptr<Session> fork() const;

    Model& model() const { return *model_; }
    const SessionOptions& options() const { return options_; }
    int64_t position() const { return static_cast<int64_t>(tokens_.size()); }
    const std::vector<int32_t>& tokens() const { return tokens_; }

    // Forgets all but the first n tokens. n from 0 to position().
    void truncate(int64_t n);

    // Post-norm hidden state of the last position (hidden). Error(invalid_argument) if nothing was evaluated
    // since the last truncate.
    std::span<const float> hidden() const;

    // The MTP layer's logits (vocab) for the token after `token`, were `token` the next one.
    void mtp_logits(int32_t token, float* logits, AbortCheck& abort);

    // out[i] = log-probability of tokens[i] given all before it; NaN for the very first token of an empty
    // session. Appends the tokens.
    void score(std::span<const int32_t> tokens, float* out, AbortCheck& abort);

  private:
    friend class Step;

    void require_state() const;

    std::shared_ptr<Model> model_;
    SessionOptions options_;
    std::vector<int32_t> tokens_;
    KvCache cache_;
    std::vector<float> hidden_;  // of the last position; empty: not known
};

enum class Logits { none, last, all };

struct StepItem {
    Session* session = nullptr;
    std::span<const int32_t> tokens;
    Logits wanted = Logits::last;
    float* logits = nullptr;  // (vocab) for last, (n, vocab) for all
};

// Evaluates each item's tokens after its session's, all in the same steps. On any error, abort included,
// every session is as it was before. Sessions must be distinct and of one model.
void step(std::span<const StepItem> items, AbortCheck& abort);

}  // namespace hy3
