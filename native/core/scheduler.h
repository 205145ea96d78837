// Continuous batching: many requests share each step, whatever they are at. Decoding requests give a row
// each, prompts as many rows as fit into the time that the others may wait. A request's answer is the same as
// alone, to the bit.
//
// Keys and values of all requests and of kept conversations take pages of one budget. When it runs short,
// conversations that ended go first, the least recently used before the others; then the youngest request is
// put back into the queue, and later reads again what it had.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/generation.h"
#include "core/logprobs.h"
#include "core/prefixes.h"

namespace hy3 {

struct SchedulerOptions {
    SessionOptions session;  // of each request; ctx: its prompt and answer
    int64_t kv_budget = 0;   // positions over all; 0: as many as max_running requests fill
    int max_running = 16;    // requests that share a step; the others wait
    double max_gap = 0.25;   // seconds between two tokens of a request while others' prompts are read
};

inline constexpr int no_logprobs = -1;

struct RequestOptions {
    std::vector<int32_t> prompt;
    GenerationOptions generation;       // jump is 0
    int top_logprobs = no_logprobs;     // most likely tokens beside each generated one
    int prompt_logprobs = no_logprobs;  // the same for the prompt's tokens
};

enum class RequestFinish { running, stop, length, cancelled, error };

// A token of a request, its end, or both.
struct RequestEvent {
    uint64_t request = 0;
    int32_t token = -1;  // -1: none; an end token is none either
    std::optional<TokenLogprobs> logprobs{};
    RequestFinish finish = RequestFinish::running;
    // With the end:
    std::string error{};
    GenerationStats stats{};
    DraftStats drafts{};
    std::vector<TokenLogprobs> prompt_logprobs{};  // of the tokens after the first
};

struct SchedulerStats {
    int64_t running = 0, waiting = 0;
    int64_t kv_tokens = 0, kv_budget = 0;  // positions, in whole pages
    int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
    int64_t drafted = 0, accepted = 0;
    int64_t steps = 0, preempted = 0;
};

// How many rows of prompts go along with rows that somebody waits for: as many as steps of about the wanted
// length hold, found out by measuring them. Where steps without any take most of that already, prompts get as
// much time as these, or they would hardly move on.
class PromptPace {
  public:
    PromptPace(double max_gap, int64_t chunk) : wanted_(0.85 * max_gap), chunk_(chunk) {}
    int64_t rows() const;
    // A step that others waited for took so long, with so many rows of prompts.
    void measured(int64_t rows, double seconds);

  private:
    double wanted_;
    int64_t chunk_;
    double without_ = 0.0;  // seconds of a step without rows of prompts, moving
    double rows_ = 32;
};

class Scheduler {
  public:
    Scheduler(std::shared_ptr<Model> model, const SchedulerOptions& options);
    ~Scheduler();

    // Queues a request and returns its number. Throws Error when it can never run: context_full for a prompt
    // that leaves no room, invalid_argument naming the option. Any thread.
    uint64_t submit(RequestOptions options);

    // Ends a request before the next step; one that has ended already is ignored. Any thread.
    void cancel(uint64_t request);

    // One step for all requests; what came of it, in the order in which the requests came. Empty at once when
    // there are none. When it throws, aborted or for lack of memory, the requests are as before and the
    // events are kept for the next call. One thread at a time.
    std::vector<RequestEvent> step(AbortCheck& abort);

    SchedulerStats stats() const;  // any thread

  private:
    struct Request;
    using Work = std::vector<std::pair<Request*, StepItem>>;

    // Where the beginning of a text is evaluated already.
    struct Donor {
        Session* session = nullptr;  // null: nowhere
        int64_t common = 0;
        bool kept = false;           // in prefixes_, not running
        bool worth_waiting = false;  // a running request is about to evaluate more of it
    };

    int64_t free_pages() const;
    Request* find(uint64_t id);
    void take_orders();
    void admit();
    Donor best_donor(const Request& request);
    bool place(Request& request, const Donor& donor);
    void make_room();
    void evaluate(AbortCheck& abort);
    void add_prompts(std::vector<Request*>& readers, int64_t rows, Work& work);
    void run(const Work& work, AbortCheck& abort);
    template <typename Body>
    void guarded(Request& request, Body&& body);
    void draw();
    void draw(Request& request);
    void end(Request& request, RequestEvent event, RequestFinish finish, const std::string& error = {});
    void sweep();
    void publish();

    const std::shared_ptr<Model> model_;
    const SchedulerOptions options_;
    const int64_t budget_;  // pages
    const std::shared_ptr<KvUse> use_ = std::make_shared<KvUse>();
    PromptPace pace_;
    std::deque<std::unique_ptr<Request>> waiting_;
    std::vector<std::unique_ptr<Request>> running_;  // in the order in which they came
    Prefixes prefixes_;
    std::vector<RequestEvent> events_;
    SchedulerStats counted_;

    mutable std::mutex mutex_;  // of what follows
    uint64_t next_id_ = 1;
    std::vector<std::unique_ptr<Request>> submitted_;
    std::vector<uint64_t> cancelled_;
    SchedulerStats published_;
};

}  // namespace hy3
