// What the opaque handles of hy3.h hold, and the guard that turns exceptions into status codes.
#pragma once

#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/generation.h"
#include "core/gguf.h"
#include "core/gguf_writer.h"
#include "core/imatrix_file.h"
#include "core/importance.h"
#include "core/model.h"
#include "core/scheduler.h"
#include "core/session.h"
#include "core/tokenizer.h"
#include "hy3.h"

struct hy3_gguf {
    std::shared_ptr<const hy3::Gguf> file;
};

struct hy3_header {
    hy3::GgufHeader header;
    std::string bytes;
};

struct hy3_tokenizer {
    std::shared_ptr<const hy3::Tokenizer> tokenizer;
};

struct hy3_decoder {
    std::shared_ptr<const hy3::Tokenizer> tokenizer;
    hy3::StreamDecoder decoder;
};

struct hy3_model {
    std::shared_ptr<hy3::Model> model;
};

struct hy3_session {
    std::unique_ptr<hy3::Session> session;
};

struct hy3_generation {
    hy3::Generation generation;
};

struct hy3_scheduler {
    hy3::Scheduler scheduler;
    std::vector<hy3::RequestEvent> events;
};

struct hy3_collector {
    hy3::ImportanceCollector collector;
};

struct hy3_imatrix {
    std::shared_ptr<const hy3::ImatrixFile> file;
};

namespace hy3::api {

hy3_status record(Status status, const char* message) noexcept;

// Runs `body`; what it throws becomes the status, and the message that hy3_last_error() returns.
template <typename Body>
hy3_status guard(Body&& body) noexcept {
    try {
        body();
        return HY3_OK;
    } catch (const Error& error) {
        return record(error.status(), error.what());
    } catch (const std::bad_alloc&) {
        return record(Status::out_of_memory, "Not enough memory. Use a smaller context, chunk or file.");
    } catch (const std::exception& error) {
        return record(Status::internal, error.what());
    }
}

inline hy3_str view(std::string_view text) {
    return {text.data(), text.size()};
}
inline std::string_view view(hy3_str text) {
    return {text.data, text.size};
}

inline void require(bool condition, const char* message) {
    if (!condition) throw Error(Status::invalid_argument, message);
}

// The structs of hy3.h as the core's, and back (api/run.cpp).
Sampling convert(const hy3_sampling& sampling);
SessionOptions convert(const hy3_session_options& options);
hy3_generation_stats convert(const GenerationStats& stats, const DraftStats& drafts);

// The caller's callback, asked at most every 10 ms: it may be costly (Python takes its global lock).
class CallbackAbort final : public AbortCheck {
  public:
    CallbackAbort(hy3_abort_fn callback, void* user) : callback_(callback), user_(user) {}
    bool operator()() override {
        if (callback_ == nullptr) return false;
        const auto now = std::chrono::steady_clock::now();
        if (now < next_) return false;
        next_ = now + std::chrono::milliseconds(10);
        return callback_(user_) != 0;
    }

  private:
    hy3_abort_fn callback_;
    void* user_;
    std::chrono::steady_clock::time_point next_{};
};

}  // namespace hy3::api
