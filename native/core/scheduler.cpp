#include "core/scheduler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>
#include <utility>

#include "core/error.h"

namespace hy3 {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Fewer rows would not pay for reading the weights.
constexpr double least_prompt_rows = 8;

// Worth waiting for another request to read it: about what starting a prompt's first step costs anyway.
constexpr int64_t least_shared = kPageSize;

SchedulerOptions checked(const Model& model, SchedulerOptions options) {
    if (options.session.ctx == 0) options.session.ctx = model.config().ctx;
    if (options.max_running < 1 || options.max_running > 1024)
        fail(Status::invalid_argument, "max_running is ", options.max_running,
             ". Give a number from 1 to 1024.");
    if (!(options.max_gap > 0.0 && options.max_gap <= 3600.0))
        fail(Status::invalid_argument, "max_gap is ", options.max_gap, ". Give seconds, up to 3600.");
    if (options.kv_budget == 0)
        options.kv_budget = options.max_running * whole_pages(options.session.ctx) * kPageSize;
    if (options.kv_budget < options.session.ctx)
        fail(Status::invalid_argument, "kv_budget is ", options.kv_budget,
             " tokens, less than the context of a single request, ", options.session.ctx,
             ". Raise it, or lower the context.");
    return options;
}

}  // namespace

int64_t PromptPace::rows() const {
    return std::min(static_cast<int64_t>(rows_), chunk_);
}

void PromptPace::measured(int64_t rows, double seconds) {
    if (rows == 0) {
        without_ += (without_ == 0.0 ? 1.0 : 0.2) * (seconds - without_);
        return;
    }
    const double change = std::clamp(std::max(wanted_, 2.0 * without_) / seconds, 0.5, 1.5);
    if (change > 1.0 && static_cast<double>(rows) < 0.75 * rows_) return;  // it was not for lack of time
    rows_ = std::clamp(rows_ * change, least_prompt_rows,
                       std::max(least_prompt_rows, static_cast<double>(chunk_)));
}

struct Scheduler::Request {
    // Keeps the log-probabilities of the prompt's tokens.
    class PromptReader final : public LogitsReader {
      public:
        explicit PromptReader(Request& request) : request_(request) {}
        int64_t begin = 0;  // of the step's tokens in the text

        void read(int64_t index, std::span<const float> logits) override {
            const auto at = static_cast<size_t>(begin + index + 1);
            const auto& prompt = request_.prompt;
            if (at < prompt.size())
                request_.prompt_logprobs[at - 1] =
                    token_logprobs(logits, prompt[at], request_.options.prompt_logprobs);
        }

      private:
        Request& request_;
    };

    Request(uint64_t number, RequestOptions o)
        : id(number),
          prompt(std::move(o.prompt)),
          max_tokens(o.generation.max_tokens),
          options(std::move(o)),
          reader(*this) {
        if (scores_prompt()) prompt_logprobs.resize(prompt.size() - 1);
    }

    const uint64_t id;
    const std::vector<int32_t> prompt;
    const int64_t max_tokens;
    RequestOptions options;
    std::unique_ptr<Session> session;      // null while it waits
    std::optional<Generation> generation;  // since it ran for the first time
    PromptReader reader;
    std::vector<TokenLogprobs> prompt_logprobs;
    Clock::time_point placed, read;  // when it first got a session, and its prompt's last logits
    bool ended = false;

    std::span<const int32_t> text() const { return generation ? generation->text() : prompt; }
    bool scores_prompt() const { return options.prompt_logprobs != no_logprobs; }
    bool reading() { return generation->left().size() > 1; }
    // Beyond the pages that are promised to it.
    bool may_grow() const {
        const auto promised = whole_pages(static_cast<int64_t>(text().size()) + 1);
        return whole_pages(static_cast<int64_t>(prompt.size()) + max_tokens) > promised;
    }

    StepItem work(int64_t rows) {
        StepItem item = generation->work(rows);
        const bool before_last = session->position() + 1 < static_cast<int64_t>(prompt.size());
        if (scores_prompt() && before_last) {
            reader.begin = session->position();
            item.reader = &reader;
        }
        return item;
    }
};

Scheduler::Scheduler(std::shared_ptr<Model> model, const SchedulerOptions& options)
    : model_(std::move(model)),
      options_(checked(*model_, options)),
      budget_(whole_pages(options_.kv_budget)),
      pace_(options_.max_gap, options_.session.chunk) {
    Session(model_, options_.session);  // refuses what no request could be made with
    publish();
}

Scheduler::~Scheduler() = default;

uint64_t Scheduler::submit(RequestOptions options) {
    GenerationOptions& generation = options.generation;
    const int vocab = model_->config().vocab;
    const auto size = static_cast<int64_t>(options.prompt.size());
    const int64_t room = options_.session.ctx - size;
    if (size == 0) fail(Status::invalid_argument, "The prompt has no tokens. Give at least one.");
    for (const int32_t token : options.prompt)
        if (token < 0 || token >= vocab)
            fail(Status::invalid_argument, "Token ", token, " is outside the vocabulary of ", vocab, ".");
    if (generation.max_tokens < 0)
        fail(Status::invalid_argument, "max_tokens is ", generation.max_tokens, ". Give 0 or more.");
    if (room < (generation.max_tokens > 0 ? 1 : 0))
        fail(Status::context_full, "The prompt has ", size, " tokens and the context holds ",
             options_.session.ctx, ", the answer included. Use a larger context or a shorter prompt.");
    generation.max_tokens = std::min(generation.max_tokens, room);
    for (const int top : {options.top_logprobs, options.prompt_logprobs})
        if (top < no_logprobs || top > vocab)
            fail(Status::invalid_argument, "Log-probabilities of the ", top,
                 " most likely tokens: give 0 to ", vocab, ".");
    draft_depth(options_.session, generation.drafts);
    check_sampling(generation.sampling);
    Shaping(generation.shaping, static_cast<size_t>(vocab));

    const std::lock_guard lock(mutex_);
    submitted_.push_back(std::make_unique<Request>(next_id_, std::move(options)));
    published_.waiting++;
    return next_id_++;
}

void Scheduler::cancel(uint64_t request) {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(request);
}

SchedulerStats Scheduler::stats() const {
    const std::lock_guard lock(mutex_);
    return published_;
}

std::vector<RequestEvent> Scheduler::step(AbortCheck& abort) {
    take_orders();
    admit();
    if (!running_.empty()) {
        make_room();
        evaluate(abort);
        draw();
        counted_.steps++;
    }
    sweep();
    publish();
    return std::exchange(events_, {});
}

void Scheduler::take_orders() {
    std::vector<uint64_t> cancelled;
    {
        const std::lock_guard lock(mutex_);
        for (auto& request : submitted_) waiting_.push_back(std::move(request));
        submitted_.clear();
        cancelled.swap(cancelled_);
    }
    for (const uint64_t id : cancelled)
        if (Request* request = find(id); request != nullptr && !request->ended)
            end(*request, {.request = id}, RequestFinish::cancelled);
    sweep();
}

Scheduler::Request* Scheduler::find(uint64_t id) {
    for (auto& request : running_)
        if (request->id == id) return request.get();
    for (auto& request : waiting_)
        if (request->id == id) return request.get();
    return nullptr;
}

// Pages that nobody has or was promised: each request's text and the token after it shall fit.
int64_t Scheduler::free_pages() const {
    int64_t free = budget_ - use_->pages;
    for (const auto& request : running_)
        free -= std::max<int64_t>(0, whole_pages(static_cast<int64_t>(request->text().size()) + 1) -
                                         whole_pages(request->session->position()));
    return free;
}

void Scheduler::admit() {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (static_cast<int>(running_.size()) == options_.max_running) break;
        const Donor donor = best_donor(**it);
        if (donor.worth_waiting) {
            ++it;
            continue;
        }
        if (!place(**it, donor)) break;  // others shall not overtake it: it might never find room
        running_.push_back(std::move(*it));
        it = waiting_.erase(it);
    }
    std::sort(running_.begin(), running_.end(), [](const auto& a, const auto& b) { return a->id < b->id; });
}

// Who has the longest prefix of a request's text: a kept conversation or a running request. A running one
// that is still reading more of the same is worth waiting for, so that many requests with one long beginning
// read it once.
Scheduler::Donor Scheduler::best_donor(const Request& request) {
    if (request.scores_prompt()) return {};  // needs the logits of every token
    const auto text = request.text();
    Donor best;
    if (Session* kept = prefixes_.find(text)) best = {kept, common_prefix(kept->tokens(), text), true, false};
    int64_t promised = 0;
    for (const auto& other : running_) {
        const int64_t common = common_prefix(other->session->tokens(), text);
        if (common > best.common) best = {other->session.get(), common, false, false};
        if (other->reading()) promised = std::max(promised, common_prefix(other->text(), text));
    }
    best.worth_waiting = promised >= best.common + least_shared;
    best.common = std::min(best.common, static_cast<int64_t>(text.size()) - 1);
    return best;
}

bool Scheduler::place(Request& request, const Donor& donor) {
    const auto size = static_cast<int64_t>(request.text().size());
    const Session* const keep = donor.kept ? donor.session : nullptr;
    int64_t needed = whole_pages(size + 1) - donor.common / kPageSize;
    // And a page for each of the others that may grow, or the first of them to need one would send this one
    // back.
    for (const auto& other : running_) needed += other->may_grow();
    while (free_pages() < needed && prefixes_.evict(keep)) {
    }
    if (free_pages() < needed && !running_.empty()) return false;

    // Alone, what is left in its way can only be the conversation that it goes on from.
    const bool take = donor.kept && (donor.common == donor.session->position() || free_pages() < needed);
    std::unique_ptr<Session> session;
    if (donor.session == nullptr)
        session = std::make_unique<Session>(model_, options_.session, use_);
    else
        session = take ? prefixes_.take(donor.session) : donor.session->fork();
    session->truncate(donor.session == nullptr ? 0 : donor.common);
    if (request.generation)
        request.generation->move_to(*session);
    else
        request.generation.emplace(*session, request.prompt, std::move(request.options.generation));
    if (request.placed == Clock::time_point{}) request.placed = Clock::now();
    request.session = std::move(session);
    return true;
}

void Scheduler::make_room() {
    while (free_pages() < 0) {
        if (prefixes_.evict(nullptr)) continue;
        if (running_.size() == 1) return;  // the budget holds any one request
        running_.back()->session.reset();
        waiting_.push_front(std::move(running_.back()));
        running_.pop_back();
        counted_.preempted++;
    }
}

void Scheduler::evaluate(AbortCheck& abort) {
    Request& first = *running_.front();
    if (running_.size() == 1 && first.generation->draft_depth() > 0 && !first.reading()) {
        // Drafts pay while the machine waits for memory. Requests that share a step use that time themselves.
        guarded(first, [&] { first.generation->advance(abort); });
        return;
    }
    std::vector<Request*> readers;
    Work work;
    bool awaited = false;  // somebody's next token
    for (const auto& request : running_) {
        if (request->reading()) {
            readers.push_back(request.get());
            continue;
        }
        awaited = true;
        if (!request->generation->use_draft()) work.emplace_back(request.get(), request->work(1));
    }
    const auto decoding = static_cast<int64_t>(work.size());
    const int64_t rows = std::max<int64_t>(
        1, std::min(awaited ? pace_.rows() : options_.session.chunk, options_.session.chunk - decoding));
    add_prompts(readers, rows, work);
    if (work.empty()) return;

    int64_t total = 0;
    for (const auto& [request, item] : work) total += static_cast<int64_t>(item.tokens.size());
    const auto begin = Clock::now();
    run(work, abort);
    if (awaited) pace_.measured(total - decoding, seconds_since(begin));
}

// Shares the rows out evenly: short prompts are through soon, and long ones take what these leave.
void Scheduler::add_prompts(std::vector<Request*>& readers, int64_t rows, Work& work) {
    const auto left = [](Request* r) { return static_cast<int64_t>(r->generation->left().size()); };
    std::stable_sort(readers.begin(), readers.end(),
                     [&](Request* a, Request* b) { return left(a) < left(b); });
    auto n = static_cast<int64_t>(readers.size());
    for (Request* request : readers) {
        // At most as many take part as get a row each; the rest in a later step.
        const int64_t share = std::min(left(request), (rows + n - 1) / n);
        n--;
        if (share == 0) continue;
        work.emplace_back(request, request->work(share));
        rows -= share;
    }
}

void Scheduler::run(const Work& work, AbortCheck& abort) {
    std::vector<StepItem> items;
    for (const auto& [request, item] : work) items.push_back(item);
    try {
        hy3::step(items, abort);
        for (const auto& [request, item] : work) request->generation->done(item);
        return;
    } catch (const Error& error) {
        if (error.status() == Status::aborted) throw;
    } catch (const std::bad_alloc&) {
    }
    // One of them cannot go on. Each by itself shows which.
    for (const auto& [request, item] : work)
        guarded(*request, [&, &member = *request, &part = item] {
            hy3::step({&part, 1}, abort);
            member.generation->done(part);
        });
}

// Ends the request if `body` throws anything but an abort.
template <typename Body>
void Scheduler::guarded(Request& request, Body&& body) {
    try {
        body();
        return;
    } catch (const Error& error) {
        if (error.status() == Status::aborted) throw;
        end(request, {.request = request.id}, RequestFinish::error, error.what());
    } catch (const std::bad_alloc&) {
        end(request, {.request = request.id}, RequestFinish::error,
            "Not enough memory. Lower the KV budget, or the number of requests at a time.");
    }
}

void Scheduler::draw() {
    for (const auto& request : running_)
        if (!request->ended && request->generation->ready())
            guarded(*request, [&, &member = *request] { draw(member); });
}

void Scheduler::draw(Request& request) {
    Generation& generation = *request.generation;
    if (request.read == Clock::time_point{}) {
        request.read = Clock::now();
        counted_.prompt_tokens += generation.stats().prompt_tokens;
        counted_.reused_tokens += generation.stats().reused_tokens;
    }
    RequestEvent event{.request = request.id};
    if (generation.finished()) {
        end(request, std::move(event), RequestFinish::length);
        return;
    }
    const std::optional<int32_t> token = generation.draw();
    if (!token) {
        end(request, std::move(event), RequestFinish::stop);
        return;
    }
    counted_.generated_tokens++;
    event.token = *token;
    if (request.options.top_logprobs != no_logprobs)
        event.logprobs = token_logprobs(generation.logits(), *token, request.options.top_logprobs);
    if (generation.finished())
        end(request, std::move(event), RequestFinish::length);
    else
        events_.push_back(std::move(event));
}

void Scheduler::end(Request& request, RequestEvent event, RequestFinish finish, const std::string& error) {
    request.ended = true;
    event.finish = finish;
    event.error = error;
    event.stats.prompt_tokens = static_cast<int64_t>(request.prompt.size());
    if (request.generation) {
        event.stats = request.generation->stats();
        event.drafts = request.generation->draft_stats();
        counted_.drafted += event.drafts.drafted;
        counted_.accepted += event.drafts.accepted;
        const bool read = request.read != Clock::time_point{};
        const auto until = read ? request.read : Clock::now();
        event.stats.prompt_seconds = std::chrono::duration<double>(until - request.placed).count();
        if (read) event.stats.decode_seconds = seconds_since(request.read);
    }
    event.prompt_logprobs = std::move(request.prompt_logprobs);
    events_.push_back(std::move(event));
    request.generation.reset();
    if (request.session != nullptr && finish != RequestFinish::error)
        prefixes_.put(std::move(request.session));
}

void Scheduler::sweep() {
    const auto ended = [](const auto& request) { return request->ended; };
    std::erase_if(running_, ended);
    std::erase_if(waiting_, ended);
}

void Scheduler::publish() {
    counted_.running = static_cast<int64_t>(running_.size());
    counted_.kv_tokens = use_->pages * kPageSize;
    counted_.kv_budget = budget_ * kPageSize;
    const std::lock_guard lock(mutex_);
    counted_.waiting = static_cast<int64_t>(waiting_.size() + submitted_.size());
    published_ = counted_;
}

}  // namespace hy3
