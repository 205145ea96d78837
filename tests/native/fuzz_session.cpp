// Loads the saved sessions that tests/fuzz sends, for a build with sanitizers (fuzz_cases.h).
//
//   fuzz_session MODEL FOLDER     MODEL has an MTP layer; writes FOLDER/base-KV for each KV type, then takes
//   cases
//
// Stages: "refused", and then the session is as before, or "ok", and then it was computed on; "changed" if a
// refused load left its traces.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "fuzz_cases.h"

namespace {

using namespace hy3::fuzz;
using Session = std::unique_ptr<hy3_session, Freer>;

constexpr std::array<const char*, 4> kv_names{"f32", "f16", "q8", "q4"};  // as hy3_kv_type counts them
constexpr int64_t ctx = 512;

void require(hy3_status status) {
    if (status == HY3_OK) return;
    std::fprintf(stderr, "fuzz_session: %s\n", hy3_last_error());
    std::exit(1);
}

std::unique_ptr<hy3_model, Freer> open_model(const char* path) {
    hy3_model_options options = hy3_model_default_options();
    options.threads = 1;
    hy3_model* model = nullptr;
    require(hy3_model_open(path, &options, &model));
    return std::unique_ptr<hy3_model, Freer>(model);
}

Session open_session(hy3_model* model, size_t kv) {
    hy3_session_options options = hy3_session_default_options();
    options.ctx = ctx;
    options.kv = static_cast<hy3_kv_type>(kv);
    options.mtp = true;
    hy3_session* session = nullptr;
    require(hy3_session_open(model, &options, &session));
    return Session(session);
}

std::vector<int32_t> tokens_of(const hy3_session* session) {
    const int32_t* tokens;
    size_t n;
    hy3_session_tokens(session, &tokens, &n);
    return {tokens, tokens + n};
}

// Errors are fine: any bytes are keys and values, NaN among them.
hy3_status evaluate(hy3_session* session, const std::vector<int32_t>& tokens) {
    const hy3_step_item item{session, tokens.data(), tokens.size(), HY3_LOGITS_NONE, nullptr};
    return hy3_step(&item, 1, nullptr, nullptr);
}

// 70 tokens, a page and a part of the next, with a jump before the last.
void write_base(hy3_session* session, const std::string& path) {
    std::vector<int32_t> tokens(69);
    for (size_t i = 0; i < tokens.size(); i++) tokens[i] = static_cast<int32_t>(i);
    require(evaluate(session, tokens));
    require(hy3_session_jump(session, 100));
    require(evaluate(session, {3}));
    require(hy3_session_save(session, path.c_str(), {"extra", 5}, nullptr, nullptr));
}

void go_on(hy3_session* session, int vocab) {
    evaluate(session, {1, 2});
    std::vector<float> logits(static_cast<size_t>(vocab));
    hy3_session_mtp_logits(session, 1, logits.data(), nullptr, nullptr);
}

Outcome run_case(const std::vector<Session>& sessions, int vocab, const std::string& path) {
    std::string message;
    Watch watch;
    for (const Session& session : sessions) {
        const auto before = tokens_of(session.get());
        const auto ignore = [](void*, hy3_str) {};
        if (hy3_session_load(session.get(), path.c_str(), ignore, nullptr, nullptr, nullptr) == HY3_OK) {
            const Outcome loaded = watch.outcome("ok", "");
            go_on(session.get(), vocab);
            return loaded;
        }
        message = hy3_last_error();
        if (tokens_of(session.get()) != before) return watch.outcome("changed", message);
    }
    return watch.outcome("refused", message);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: fuzz_session MODEL FOLDER\n");
        return 2;
    }
    const auto model = open_model(argv[1]);
    hy3_config config;
    hy3_model_config(model.get(), &config);
    std::vector<Session> sessions;
    for (size_t kv = 0; kv < kv_names.size(); kv++) {
        sessions.push_back(open_session(model.get(), kv));
        write_base(sessions.back().get(), std::string(argv[2]) + "/base-" + kv_names[kv]);
    }
    return run_cases([&](const std::string& path) { return run_case(sessions, config.vocab, path); });
}
