#include "core/session.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/logprobs.h"

namespace hy3 {
namespace {

// Speculation leaves the MTP layer's rows of at most about so many positions to be written together, so that
// the states kept for them stay small.
constexpr int64_t max_kept = 32;

KvLayout make_layout(const Model& model, const SessionOptions& options) {
    const Config& c = model.config();
    return {options.kv, c.n_layers + (options.mtp ? 1 : 0), c.n_kv_heads, c.head_dim};
}

SessionOptions checked(const Model& model, SessionOptions options) {
    const Config& c = model.config();
    if (options.ctx == 0) options.ctx = c.ctx;
    if (options.ctx < 1 || options.ctx > c.ctx)
        fail(Status::invalid_argument, "ctx is ", options.ctx, ", and the model's context is ", c.ctx,
             ". Give a number from 1 to that.");
    if (options.chunk < 1 || options.chunk > 65536)
        fail(Status::invalid_argument, "chunk is ", options.chunk, ". Give a number from 1 to 65536.");
    if (options.kv == KvType::q4 && c.head_dim % kKvGroup != 0)
        fail(Status::unsupported, "The KV type q4 scales ", kKvGroup,
             " columns together, and the model's heads have ", c.head_dim, ". Use q8.");
    if (options.mtp && c.n_mtp_layers == 0)
        fail(Status::unsupported, model.file()->path(),
             ": the model has no MTP layer. Use a file that has one, or leave mtp off.");
    return options;
}

}  // namespace

// One evaluation of tokens of several sessions.
class Step {
  public:
    struct Part {
        Session* session;
        std::span<const int32_t> tokens;
        Logits wanted = Logits::none;
        float* logits = nullptr;  // (vocab) for last, (n, vocab) for all
        bool speculative = false;
        LogitsReader* reader = nullptr;
        int64_t read = 0;             // tokens whose logits the reader gets, the first ones
        bool needs_previous = false;  // the reader also gets those before the first token
        // Progress, in tokens; starts at -1 when the last token so far is evaluated again.
        int64_t done = 0;
        std::vector<float> states{};  // of all rows done when speculative, else of the last one
    };

    Step(std::span<Part> parts, AbortCheck& abort) : parts_(parts), abort_(abort) {}

    void run() {
        check();
        for (Part& part : parts_) {
            part.session->guesses_.clear();
            part.session->revision_++;
        }
        try {
            for (Part& part : parts_) prepare(part);
            while (chunk()) {
            }
        } catch (...) {
            for (Part& part : parts_) part.session->cache_.shrink(part.session->position());
            throw;
        }
        for (Part& part : parts_)
            if (!part.tokens.empty()) append(part);
    }

  private:
    // Rows [row, row + count) of a chunk are tokens [first, first + count) of a part.
    struct Segment {
        Part* part;
        int64_t first, count, row;
    };

    Model& model() const { return parts_.front().session->model(); }

    void check() const {
        const int vocab = model().config().vocab;
        for (const Part& part : parts_) {
            if (&part.session->model() != &model())
                fail(Status::invalid_argument, "The sessions of a step must share one model.");
            for (const Part& other : parts_)
                if (&other != &part && other.session == part.session)
                    fail(Status::invalid_argument, "A session may occur only once in a step.");
            if (part.speculative && !part.session->options().mtp)
                fail(Status::invalid_argument, "The session was made without mtp. Make it with mtp=True.");
            for (const int32_t token : part.tokens)
                if (token < 0 || token >= vocab)
                    fail(Status::invalid_argument, "Token ", token, " is outside the vocabulary of ", vocab,
                         ".");
            const int64_t position = part.session->position(), ctx = part.session->options().ctx;
            const auto n = static_cast<int64_t>(part.tokens.size());
            if (n > ctx - position)
                fail(Status::context_full, "The context holds ", ctx, " tokens: ", position, " are used and ",
                     n, " more do not fit. Use a larger context or a shorter text.");
        }
    }

    static void prepare(Part& part) {
        Session& s = *part.session;
        if (part.tokens.empty()) return;
        s.tokens_.reserve(s.tokens_.size() + part.tokens.size());
        if (part.speculative) {
            s.guesses_.reserve(part.tokens.size());
            s.states_.reserve(s.states_.size() + 2 * s.width());
            part.states.reserve((part.tokens.size() + 1) * s.width());
        }
        // The state of the last position is lost after truncate(). Evaluating that token again restores it
        // and writes the very bytes that are there already.
        const bool needs_state =
            s.position() > 0 && !s.has_hidden() && (s.options_.mtp || part.needs_previous);
        part.done = needs_state ? -1 : 0;
        if (!part.speculative && s.has_hidden()) part.states.assign(s.hidden().begin(), s.hidden().end());
        const int64_t back = needs_state ? 1 : s.options_.mtp ? s.kept() : 0;
        s.cache_.prepare(s.position() - back, static_cast<int64_t>(part.tokens.size()) + back);
    }

    // Cannot fail: prepare() made room.
    static void append(Part& part) {
        Session& s = *part.session;
        const bool written = s.mtp_token_ == part.tokens.front();
        s.mtp_token_ = -1;
        if (!part.speculative) {
            s.tokens_.insert(s.tokens_.end(), part.tokens.begin(), part.tokens.end());
            s.states_ = std::move(part.states);
            return;
        }
        if (written) s.states_.clear();
        s.tokens_.push_back(part.tokens.front());
        s.guesses_.assign(part.tokens.begin() + 1, part.tokens.end());
        const auto guesses = part.states.end() - static_cast<int64_t>(s.guesses_.size() * s.width());
        s.states_.insert(s.states_.end(), part.states.begin(), guesses);
        part.states.erase(part.states.begin(), guesses);
        s.guess_states_ = std::move(part.states);
    }

    static int32_t token_at(const Part& part, int64_t i) {
        return i < 0 ? part.session->tokens_.back() : part.tokens[static_cast<size_t>(i)];
    }

    // Evaluates as many rows as a chunk holds; false when nothing was left to do.
    bool chunk() {
        std::vector<Row> rows;
        std::vector<const KvCache*> caches;
        std::vector<Segment> segments;
        int64_t room = model_chunk();
        for (Part& part : parts_) {
            const auto n = static_cast<int64_t>(part.tokens.size());
            const int64_t count = std::min(room, n - part.done);
            if (n == 0 || count <= 0) continue;
            segments.push_back({&part, part.done, count, static_cast<int64_t>(rows.size())});
            for (int64_t i = part.done; i < part.done + count; i++)
                rows.push_back(
                    part.session->row(token_at(part, i), part.session->position() + i, caches.size()));
            caches.push_back(&part.session->cache_);
            room -= count;
        }
        if (rows.empty()) return false;

        Model::Turn turn(model(), abort_);
        Forward& forward = turn.forward();
        for (const Segment& segment : segments) {
            Session& session = *segment.part->session;
            if (session.options().mtp && session.kept() > (segment.part->speculative ? max_kept : 1))
                session.write_mtp_behind(forward);
        }
        const float* states = forward.trunk(rows, caches);
        give_logits(forward, segments, states);
        update_mtp(forward, segments, states);
        for (const Segment& segment : segments) keep_states(segment, states);
        return true;
    }

    // Logits that were asked for after a row.
    struct RowLogits {
        int64_t row;
        float* to;             // null: only for the reader
        LogitsReader* reader;  // null: nobody
        int64_t index;         // as reader->read() has it
    };

    // What the parts want of a chunk, in the order of its rows.
    std::vector<RowLogits> wanted_logits(const std::vector<Segment>& segments) const {
        std::vector<RowLogits> wanted;
        for (const Segment& segment : segments) {
            const Part& part = *segment.part;
            const auto n = static_cast<int64_t>(part.tokens.size());
            for (int64_t k = 0; k < segment.count; k++) {
                const int64_t i = segment.first + k;
                float* to = nullptr;
                if (i >= 0 && part.wanted == Logits::all) to = part.logits + i * model().config().vocab;
                if (i == n - 1 && part.wanted == Logits::last) to = part.logits;
                LogitsReader* reader = i < part.read ? part.reader : nullptr;
                if (to != nullptr || reader != nullptr) wanted.push_back({segment.row + k, to, reader, i});
            }
        }
        return wanted;
    }

    // The rows of all parts go through the head together: it has the weights of several layers.
    void give_logits(Forward& forward, const std::vector<Segment>& segments, const float* states) {
        const std::vector<RowLogits> wanted = wanted_logits(segments);
        const auto vocab = static_cast<size_t>(model().config().vocab);
        for (size_t first = 0; first < wanted.size(); first += Forward::head_rows) {
            const std::span batch =
                std::span(wanted).subspan(first).first(std::min(Forward::head_rows, wanted.size() - first));
            std::vector<int64_t> rows;
            std::vector<float*> to;
            for (const RowLogits& one : batch) {
                if (one.to == nullptr) unkept_.resize(Forward::head_rows * vocab);
                to.push_back(one.to != nullptr ? one.to : unkept_.data() + rows.size() * vocab);
                rows.push_back(one.row);
            }
            forward.head(rows, states, to);
            for (size_t i = 0; i < batch.size(); i++)
                if (batch[i].reader != nullptr) batch[i].reader->read(batch[i].index, {to[i], vocab});
        }
    }

    void keep_states(const Segment& segment, const float* states) {
        Part& part = *segment.part;
        const size_t width = part.session->width();
        const auto rows = static_cast<size_t>(part.speculative ? segment.count : 1);
        if (!part.speculative) part.states.clear();
        part.states.resize(part.states.size() + rows * width);
        const auto first = static_cast<size_t>(segment.row + segment.count) - rows;
        model().backend().download(part.states.data() + part.states.size() - rows * width,
                                   states + first * width, rows * width * sizeof(float));
        part.done += segment.count;
    }

    int64_t model_chunk() const {
        int chunk = std::numeric_limits<int>::max();
        for (const Part& part : parts_) chunk = std::min(chunk, part.session->options().chunk);
        return chunk;
    }

    // The MTP layer's row at position t takes the state of t and the token of t + 1, so each row of the chunk
    // completes the MTP row before it. Speculation's are left for the next draft.
    void update_mtp(Forward& forward, const std::vector<Segment>& segments, const float* states) {
        std::vector<Row> rows;
        std::vector<const KvCache*> caches;
        const auto width = static_cast<size_t>(model().config().hidden);
        Buffer gathered(model().backend());
        int64_t total = 0;
        const auto wanted = [](const Part& part) { return part.session->options().mtp && !part.speculative; };
        for (const Segment& s : segments)
            if (wanted(*s.part)) total += s.count;
        if (total == 0) return;
        float* inputs = gathered.get<float>(total * static_cast<int64_t>(width));
        for (const Segment& s : segments) {
            const Session& session = *s.part->session;
            if (!wanted(*s.part)) continue;
            for (int64_t i = s.first; i < s.first + s.count; i++) {
                const int64_t before = session.position() + i - 1;
                if (before < 0 || i < 0) continue;
                float* to = inputs + rows.size() * width;
                if (i == s.first)
                    model().backend().upload(to, s.part->states.data(), width * sizeof(float));
                else
                    model().backend().copy(to, states + static_cast<size_t>(s.row + i - 1 - s.first) * width,
                                           width * sizeof(float));
                rows.push_back(session.row(token_at(*s.part, i), before, caches.size()));
            }
            caches.push_back(&session.cache_);
        }
        if (!rows.empty()) forward.mtp(rows, caches, inputs);
    }

    std::span<Part> parts_;
    AbortCheck& abort_;
    std::vector<float> unkept_;  // (head_rows, vocab): logits only for readers
};

namespace {

// The state of token i scores token i + 1.
class Scorer final : public LogitsReader {
  public:
    Scorer(std::span<const int32_t> tokens, float* out) : tokens_(tokens), out_(out) {}

    void read(int64_t index, std::span<const float> logits) override {
        const auto next = static_cast<size_t>(index + 1);
        out_[next] = static_cast<float>(log_probability(logits, tokens_[next]));
    }

  private:
    std::span<const int32_t> tokens_;
    float* out_;
};

}  // namespace

Session::Session(std::shared_ptr<Model> model, const SessionOptions& options, std::shared_ptr<KvUse> use)
    : model_(std::move(model)),
      options_(checked(*model_, options)),
      cache_(model_->backend(), make_layout(*model_, options_), std::move(use)) {}

std::unique_ptr<Session> Session::fork() const {
    return std::unique_ptr<Session>(new Session(*this));
}

void Session::truncate(int64_t n) {
    if (n < 0 || n > position())
        fail(Status::invalid_argument, "Cannot truncate to ", n, ": the session has ", position(),
             " tokens.");
    const size_t jumps = jumps_.size();
    while (!jumps_.empty() && jumps_.back().at >= n) jumps_.pop_back();
    if (n == position() && jumps == jumps_.size()) return;
    // States of positions that stay are kept: the MTP layer's rows of those before the last are not written.
    const int64_t stay = std::max<int64_t>(0, n - (position() - kept()));
    states_.resize(static_cast<size_t>(stay) * width());
    guesses_.clear();
    mtp_token_ = -1;
    revision_++;
    tokens_.resize(static_cast<size_t>(n));
    cache_.shrink(n);
}

void Session::check_jump(int64_t n) const {
    const int64_t so_far = jumps_.empty() ? 0 : jumps_.back().by;
    const int64_t most = std::max<int64_t>(max_rope_position - options_.ctx - so_far, 0);
    if (n < 0 || n > most)
        fail(Status::invalid_argument, "The position jump is ", n, ". Give a number from 0 to ", most,
             " here: float32 tells positions apart only up to ", max_rope_position, ".");
}

void Session::jump(int64_t n) {
    check_jump(n);
    if (n == 0) return;
    jumps_.push_back({position(), n + (jumps_.empty() ? 0 : jumps_.back().by)});
    guesses_.clear();
    revision_++;
}

Row Session::row(int32_t token, int64_t at, size_t sequence) const {
    int64_t by = 0;
    for (const Jump& jump : jumps_)
        if (jump.at <= at) by = jump.by;
    return {token, static_cast<int32_t>(at), static_cast<int32_t>(sequence), static_cast<int32_t>(at + by)};
}

void Session::require_state() const {
    if (!has_hidden())
        fail(Status::invalid_argument,
             "The session has no hidden state: nothing was evaluated since it was made or truncated. "
             "Evaluate a token "
             "first.");
}

std::span<const float> Session::hidden() const {
    require_state();
    return std::span(states_).last(width());
}

void Session::score(std::span<const int32_t> tokens, float* out, AbortCheck& abort) {
    if (tokens.empty()) return;
    const auto vocab = static_cast<size_t>(model_->config().vocab);
    Scorer scorer(tokens, out);
    Step::Part part{.session = this,
                    .tokens = tokens,
                    .reader = &scorer,
                    .read = static_cast<int64_t>(tokens.size()) - 1,
                    .needs_previous = true};
    // The first token is scored by the state before it: already there, or evaluated again by the step.
    out[0] = std::numeric_limits<float>::quiet_NaN();
    if (has_hidden()) {
        Model::Turn turn(*model_, abort);
        Buffer state(model_->backend());
        float* input = state.get<float>(static_cast<int64_t>(width()));
        model_->backend().upload(input, hidden().data(), width() * sizeof(float));
        std::vector<float> logits(vocab);
        const int64_t first = 0;
        float* to = logits.data();
        turn.forward().head({&first, 1}, input, {&to, 1});
        const int32_t token = tokens.front();
        if (token >= 0 && static_cast<size_t>(token) < vocab)  // if not, the step below refuses it
            out[0] = static_cast<float>(log_probability(logits, token));
    }
    Step({&part, 1}, abort).run();
}

void step(std::span<const StepItem> items, AbortCheck& abort) {
    if (items.empty()) return;
    std::vector<Step::Part> parts;
    for (const StepItem& item : items) {
        if (item.tokens.empty() && item.wanted == Logits::last)
            fail(Status::invalid_argument,
                 "There are no tokens to evaluate, so there are no last logits. Give at "
                 "least one token.");
        parts.push_back({.session = item.session,
                         .tokens = item.tokens,
                         .wanted = item.wanted,
                         .logits = item.logits,
                         .speculative = item.speculative,
                         .reader = item.reader,
                         .read = static_cast<int64_t>(item.tokens.size())});
    }
    Step(parts, abort).run();
}

}  // namespace hy3
