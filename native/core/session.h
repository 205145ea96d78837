// A session: one sequence of tokens with its key/value cache, and the step that evaluates tokens of one or
// several sessions together. A session belongs to one thread at a time; its model may be shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/draft_policy.h"
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
    // use: counts the pages of this session and its forks; null: nobody counts.
    Session(std::shared_ptr<Model> model, const SessionOptions& options,
            std::shared_ptr<KvUse> use = nullptr);

    // A second session with the same content; pages are shared until one of them writes.
    std::unique_ptr<Session> fork() const;

    Model& model() const { return *model_; }
    const SessionOptions& options() const { return options_; }
    int64_t position() const { return static_cast<int64_t>(tokens_.size()); }
    const std::vector<int32_t>& tokens() const { return tokens_; }
    // Bytes of the key/value cache at this length.
    size_t kv_bytes() const { return cache_.bytes(); }

    // Forgets all but the first n tokens, and the jumps after them. n from 0 to position().
    void truncate(int64_t n);

    // Puts the tokens to come n positions further away from those so far, for RoPE alone: between them are no
    // keys, and the cache has no gap. To probe how a model copes with distances.
    void jump(int64_t n);
    // Throws what jump(n) would.
    void check_jump(int64_t n) const;
    // Tokens before the first jump.
    int64_t tokens_before_jumps() const { return jumps_.empty() ? position() : jumps_.front().at; }

    // Post-norm hidden state of the last position (hidden). Error(invalid_argument) if nothing was evaluated
    // since the last truncate.
    std::span<const float> hidden() const;
    bool has_hidden() const { return !states_.empty(); }

    // The MTP layer's logits (vocab) for the token after `token`, were `token` the next one. Returns the
    // layer's own post-norm state (hidden), from which mtp_chain goes on.
    std::vector<float> mtp_logits(int32_t token, float* logits, AbortCheck& abort);

    // The same further ahead: `depth` tokens were assumed after the session's, the last of them `token`, and
    // the call for those before it returned `state`. depth is at least 2, and leaves the last one a place in
    // the context.
    std::vector<float> mtp_chain(int depth, int32_t token, std::span<const float> state, float* logits,
                                 AbortCheck& abort);

    // Appends `token` without computing if it is the next of the guesses that the last step evaluated (see
    // StepItem); if not, the guesses are forgotten.
    bool accept(int32_t token);

    // Changes with every step and truncation, so that guesses can be told from those of a later step.
    uint64_t revision() const { return revision_; }
    // What speculation has learned in this session so far.
    DraftPolicy& draft_policy() { return draft_policy_; }

    // out[i] = log-probability of tokens[i] given all before it; NaN for the very first token of an empty
    // session. Appends the tokens.
    void score(std::span<const int32_t> tokens, float* out, AbortCheck& abort);

    // The whole state in a file (core/session_file.h), from which a session of the same model, backend, KV
    // type and mtp goes on bit for bit. `extra` goes along, and is what load returns. A load that fails
    // leaves the session as it was.
    void save(const std::string& path, std::string_view extra, AbortCheck& abort) const;
    std::string load(const std::string& path, AbortCheck& abort);

  private:
    friend class Step;

    struct Jump {
        int64_t at;  // index of the first token after it
        int64_t by;  // all jumps up to this one
    };

    // The row of a token at a place in this sequence, with the jumps before it.
    Row row(int32_t token, int64_t at, size_t sequence = 0) const;
    void require_state() const;
    size_t width() const { return static_cast<size_t>(model_->config().hidden); }
    // How many positions at the end have their states kept.
    int64_t kept() const { return static_cast<int64_t>(states_.size() / width()); }
    std::vector<Row> mtp_rows_behind() const;
    void write_mtp_behind(Forward& forward);
    std::vector<float> run_mtp(std::span<const Row> rows, std::span<const float> states, float* logits,
                               AbortCheck& abort);

    std::shared_ptr<Model> model_;
    SessionOptions options_;
    std::vector<int32_t> tokens_;
    std::vector<Jump> jumps_;  // ascending
    KvCache cache_;
    // Post-norm states (kept, hidden) of the last positions; empty: not known. The MTP layer's row of a
    // position needs the token after it, so the last one's is always still to be written; speculation leaves
    // those of some positions before it to be written together.
    std::vector<float> states_;
    // Evaluated past the last position, in the cache, and not of the session until accept().
    std::vector<int32_t> guesses_;
    std::vector<float> guess_states_;  // (guesses, hidden)
    // The token with which the MTP layer's row of the last position was written ahead of time; -1: it was
    // not.
    int32_t mtp_token_ = -1;
    uint64_t revision_ = 0;
    DraftPolicy draft_policy_;
};

enum class Logits { none, last, all };

// Reads the logits after each token of a step as they are computed, in order, so that there need not be
// memory for all of them.
class LogitsReader {
  public:
    virtual ~LogitsReader() = default;
    // index: the item's token that the logits come after; -1 is the session's last one before the step.
    virtual void read(int64_t index, std::span<const float> logits) = 0;
};

struct StepItem {
    Session* session = nullptr;
    std::span<const int32_t> tokens;
    Logits wanted = Logits::last;
    float* logits = nullptr;  // (vocab) for last, (n, vocab) for all
    // The tokens after the first are guesses: evaluated, but appended one by one by accept(), as long as the
    // session does nothing else in between. The MTP layer's rows are left for later. Needs the mtp option.
    bool speculative = false;
    LogitsReader* reader = nullptr;  // null: nobody
};

// Evaluates each item's tokens after its session's, all in the same steps. On any error, abort included,
// every session is as it was before. Sessions must be distinct and of one model.
void step(std::span<const StepItem> items, AbortCheck& abort);

}  // namespace hy3
