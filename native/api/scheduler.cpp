// hy3.h: continuous batching.
#include <utility>
#include <vector>

#include "api/handles.h"
#include "core/scheduler.h"

using namespace hy3::api;

namespace {

hy3::Mask mask_of(hy3_mask_fn mask, void* user) {
    if (mask == nullptr) return {};
    return [=](std::span<const int32_t> generated, std::span<uint32_t> allowed) {
        const char* error = "The mask function failed.";
        if (mask(user, generated.data(), generated.size(), allowed.data(), allowed.size(), &error) != 0)
            hy3::fail(hy3::Status::invalid_argument, error);
    };
}

hy3::RequestOptions request_of(const hy3_request& r) {
    hy3::RequestOptions out;
    out.prompt.assign(r.prompt, r.prompt + r.n_prompt);
    hy3::GenerationOptions& generation = out.generation;
    generation.sampling = convert(r.sampling);
    generation.stop_ids.assign(r.stop_ids, r.stop_ids + r.n_stop);
    generation.max_tokens = r.max_tokens;
    generation.drafts = {r.drafting.depth, r.drafting.always};
    for (size_t i = 0; i < r.n_bias; i++) generation.shaping.bias.push_back({r.bias[i].id, r.bias[i].bias});
    generation.shaping.presence_penalty = r.presence_penalty;
    generation.shaping.frequency_penalty = r.frequency_penalty;
    generation.shaping.mask = mask_of(r.mask, r.mask_user);
    out.top_logprobs = r.top_logprobs;
    out.prompt_logprobs = r.prompt_logprobs;
    return out;
}

hy3_token_logprobs logprobs_of(const hy3::TokenLogprobs& logprobs) {
    static_assert(sizeof(hy3_token_logprob) == sizeof(hy3::TokenLogprob));
    return {logprobs.chosen, reinterpret_cast<const hy3_token_logprob*>(logprobs.top.data()),
            logprobs.top.size()};
}

}  // namespace

extern "C" {

hy3_scheduler_options hy3_scheduler_default_options(void) {
    return {hy3_session_default_options(), 0, 16, 0.25};
}

hy3_status hy3_scheduler_new(hy3_model* model, const hy3_scheduler_options* o, hy3_scheduler** out) {
    return guard([&] {
        const hy3::SchedulerOptions options{convert(o->session), o->kv_budget, o->max_running, o->max_gap};
        *out = new hy3_scheduler{hy3::Scheduler(model->model, options), {}};
    });
}

void hy3_scheduler_free(hy3_scheduler* scheduler) {
    delete scheduler;
}

hy3_status hy3_scheduler_submit(hy3_scheduler* scheduler, const hy3_request* request, uint64_t* out) {
    return guard([&] { *out = scheduler->scheduler.submit(request_of(*request)); });
}

hy3_status hy3_scheduler_cancel(hy3_scheduler* scheduler, uint64_t request) {
    return guard([&] { scheduler->scheduler.cancel(request); });
}

hy3_status hy3_scheduler_step(hy3_scheduler* scheduler, hy3_abort_fn abort, void* user, size_t* n) {
    return guard([&] {
        CallbackAbort check(abort, user);
        scheduler->events = scheduler->scheduler.step(check);
        *n = scheduler->events.size();
    });
}

void hy3_scheduler_event(const hy3_scheduler* scheduler, size_t index, hy3_event* out) {
    const hy3::RequestEvent& event = scheduler->events[index];
    *out = {event.request,
            event.token,
            event.logprobs.has_value(),
            event.logprobs ? logprobs_of(*event.logprobs) : hy3_token_logprobs{},
            static_cast<hy3_request_finish>(event.finish),
            view(event.error),
            convert(event.stats, event.drafts),
            event.prompt_logprobs.size()};
}

void hy3_scheduler_prompt_logprobs(const hy3_scheduler* scheduler, size_t event, size_t index,
                                   hy3_token_logprobs* out) {
    *out = logprobs_of(scheduler->events[event].prompt_logprobs[index]);
}

void hy3_scheduler_get_stats(const hy3_scheduler* scheduler, hy3_scheduler_stats* out) {
    const hy3::SchedulerStats s = scheduler->scheduler.stats();
    *out = {s.running,          s.waiting, s.kv_tokens, s.kv_budget, s.prompt_tokens, s.reused_tokens,
            s.generated_tokens, s.drafted, s.accepted,  s.steps,     s.preempted};
}

}  // extern "C"
