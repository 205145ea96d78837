// hy3.h: models, sessions, sampling, generation.
#include <utility>
#include <vector>

#include "api/handles.h"
#include "core/sampler.h"

using namespace hy3::api;

hy3::Sampling hy3::api::convert(const hy3_sampling& s) {
    return {s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, s.seed, s.choice};
}

namespace {

hy3::KvType convert(hy3_kv_type type) {
    switch (type) {
        case HY3_KV_F32:
            return hy3::KvType::f32;
        case HY3_KV_F16:
            return hy3::KvType::f16;
        case HY3_KV_Q8:
            return hy3::KvType::q8;
        case HY3_KV_Q4:
            return hy3::KvType::q4;
    }
    hy3::fail(hy3::Status::invalid_argument, "The KV type is unknown. Give f32, f16, q8 or q4.");
}

std::span<const int32_t> ids(const int32_t* data, size_t n) {
    return {data, n};
}

}  // namespace

hy3::SessionOptions hy3::api::convert(const hy3_session_options& o) {
    return {o.ctx, ::convert(o.kv), o.chunk, o.mtp};
}

hy3_generation_stats hy3::api::convert(const GenerationStats& s, const DraftStats& drafts) {
    static_assert(HY3_MAX_DRAFTS == DraftPolicy::max_depth);
    hy3_generation_stats out{s.prompt_tokens,
                             s.reused_tokens,
                             s.generated_tokens,
                             s.prompt_seconds,
                             s.decode_seconds,
                             drafts.drafted,
                             drafts.accepted,
                             static_cast<int>(drafts.by_depth.size()),
                             {},
                             static_cast<hy3_finish>(s.finish),
                             s.stop_id};
    for (size_t i = 0; i < drafts.by_depth.size(); i++)
        out.drafts[i] = {drafts.by_depth[i].judged, drafts.by_depth[i].right};
    return out;
}

extern "C" {

hy3_model_options hy3_model_default_options(void) {
    return {"auto", 0, 0, 0.0f, 0, 0.0f, 0.0f, 0.0f, true, false, nullptr};
}

hy3_status hy3_model_open(const char* path, const hy3_model_options* o, hy3_model** out) {
    return guard([&] {
        require(o->threads >= 0, "The number of threads cannot be negative. Give 0 for all cores.");
        hy3::ModelOptions options{o->backend,
                                  o->threads,
                                  {o->experts, o->rope_factor, o->rope_ctx, o->rope_attention_factor,
                                   o->rope_beta_fast, o->rope_beta_slow},
                                  o->use_mmap,
                                  o->mlock,
                                  {}};
        if (o->mtp_model != nullptr) options.mtp_model = o->mtp_model;
        *out = new hy3_model{std::make_shared<hy3::Model>(path, options)};
    });
}

void hy3_model_free(hy3_model* model) {
    delete model;
}

void hy3_model_config(const hy3_model* model, hy3_config* out) {
    const hy3::Config& c = model->model->config();
    *out = {c.n_layers,
            c.n_mtp_layers,
            c.hidden,
            c.n_heads,
            c.n_kv_heads,
            c.head_dim,
            c.ffn,
            c.n_experts,
            c.n_experts_used,
            c.n_shared_experts,
            c.expert_ffn,
            c.shared_ffn,
            c.vocab,
            c.ctx,
            c.rms_eps,
            c.rope.theta,
            c.rope.factor,
            c.router_scale,
            c.route_norm,
            c.gating == hy3::Gating::softmax,
            c.tied_head};
}

void hy3_model_rope(const hy3_model* model, const float** inv_freq, size_t* n, float* scale) {
    const hy3::RopeFrequencies& rope = model->model->rope();
    *inv_freq = rope.inv_freq.data();
    *n = rope.inv_freq.size();
    *scale = rope.scale;
}

const char* hy3_model_backend(const hy3_model* model) {
    return model->model->backend_name().c_str();
}

int hy3_model_threads(const hy3_model* model) {
    return model->model->backend().threads();
}

hy3_status hy3_model_gguf(const hy3_model* model, hy3_gguf** out) {
    return guard([&] { *out = new hy3_gguf{model->model->file()}; });
}

hy3_status hy3_model_tokenizer(const hy3_model* model, hy3_tokenizer** out) {
    return guard([&] { *out = new hy3_tokenizer{model->model->tokenizer()}; });
}

hy3_session_options hy3_session_default_options(void) {
    return {0, HY3_KV_F16, 512, false};
}

hy3_status hy3_session_open(hy3_model* model, const hy3_session_options* o, hy3_session** out) {
    return guard([&] { *out = new hy3_session{std::make_unique<hy3::Session>(model->model, convert(*o))}; });
}

hy3_status hy3_session_fork(const hy3_session* session, hy3_session** out) {
    return guard([&] { *out = new hy3_session{session->session->fork()}; });
}

void hy3_session_free(hy3_session* session) {
    delete session;
}

void hy3_session_tokens(const hy3_session* session, const int32_t** tokens, size_t* n) {
    *tokens = session->session->tokens().data();
    *n = session->session->tokens().size();
}

uint64_t hy3_session_kv_bytes(const hy3_session* session) {
    return session->session->kv_bytes();
}

hy3_status hy3_session_truncate(hy3_session* session, int64_t n) {
    return guard([&] { session->session->truncate(n); });
}

hy3_status hy3_session_jump(hy3_session* session, int64_t n) {
    return guard([&] { session->session->jump(n); });
}

hy3_status hy3_session_save(const hy3_session* session, const char* path, hy3_str extra, hy3_abort_fn abort,
                            void* user) {
    return guard([&] {
        CallbackAbort check(abort, user);
        session->session->save(path, view(extra), check);
    });
}

hy3_status hy3_session_load(hy3_session* session, const char* path, void (*take)(void* user, hy3_str extra),
                            void* take_user, hy3_abort_fn abort, void* user) {
    return guard([&] {
        CallbackAbort check(abort, user);
        take(take_user, view(session->session->load(path, check)));
    });
}

hy3_status hy3_session_hidden(const hy3_session* session, const float** out) {
    return guard([&] { *out = session->session->hidden().data(); });
}

hy3_status hy3_session_mtp_logits(hy3_session* session, int32_t token, float* logits, hy3_abort_fn abort,
                                  void* user) {
    return guard([&] {
        CallbackAbort check(abort, user);
        session->session->mtp_logits(token, logits, check);
    });
}

hy3_status hy3_session_score(hy3_session* session, const int32_t* tokens, size_t n, float* out,
                             hy3_abort_fn abort, void* user) {
    return guard([&] {
        CallbackAbort check(abort, user);
        session->session->score(ids(tokens, n), out, check);
    });
}

hy3_status hy3_step(const hy3_step_item* items, size_t n, hy3_abort_fn abort, void* user) {
    return guard([&] {
        std::vector<hy3::StepItem> all;
        for (size_t i = 0; i < n; i++)
            all.push_back({items[i].session->session.get(), ids(items[i].tokens, items[i].n),
                           static_cast<hy3::Logits>(items[i].wanted), items[i].logits});
        CallbackAbort check(abort, user);
        hy3::step(all, check);
    });
}

hy3_sampling hy3_sampling_defaults(void) {
    return {0.0f, 0, 1.0f, 0.0f, 1.0f, 0, 0};
}

hy3_status hy3_check_sampling(const hy3_sampling* sampling) {
    return guard([&] { hy3::check_sampling(convert(*sampling)); });
}

hy3_status hy3_sample(const float* logits, size_t vocab, const hy3_sampling* sampling, const int32_t* recent,
                      size_t n_recent, uint64_t position, int32_t* out) {
    return guard([&] {
        require(vocab > 0, "There are no logits to sample from.");
        for (const int32_t id : ids(recent, n_recent))
            require(id >= 0 && static_cast<size_t>(id) < vocab, "A recent token is outside the vocabulary.");
        *out = hy3::Sampler(convert(*sampling)).sample({logits, vocab}, ids(recent, n_recent), position);
    });
}

hy3_status hy3_generation_new(hy3_session* session, const int32_t* prompt, size_t n,
                              const hy3_sampling* sampling, const int32_t* stop_ids, size_t n_stop,
                              int64_t max_tokens, hy3_drafting drafting, int64_t jump, hy3_generation** out) {
    return guard([&] {
        const auto text = ids(prompt, n), stops = ids(stop_ids, n_stop);
        *out = new hy3_generation{hy3::Generation(*session->session, {text.begin(), text.end()},
                                                  {convert(*sampling),
                                                   {stops.begin(), stops.end()},
                                                   max_tokens,
                                                   {drafting.depth, drafting.always},
                                                   jump,
                                                   {}})};
    });
}

void hy3_generation_free(hy3_generation* generation) {
    delete generation;
}

hy3_status hy3_generation_prefill(hy3_generation* generation, hy3_abort_fn abort, void* user, bool* more) {
    return guard([&] {
        CallbackAbort check(abort, user);
        *more = generation->generation.prefill(check);
    });
}

hy3_status hy3_generation_next(hy3_generation* generation, hy3_abort_fn abort, void* user, int32_t* token) {
    return guard([&] {
        CallbackAbort check(abort, user);
        *token = generation->generation.next(check).value_or(-1);
    });
}

void hy3_generation_get_stats(const hy3_generation* generation, hy3_generation_stats* out) {
    *out = convert(generation->generation.stats(), generation->generation.draft_stats());
}

}  // extern "C"
