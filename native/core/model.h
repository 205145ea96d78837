// A model ready to run: the file, its configuration, tokenizer and weights, and the backend that computes.
// Shared by all its sessions, possibly on several threads; steps of different threads take turns.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/backend.h"
#include "core/config.h"
#include "core/forward.h"
#include "core/gguf.h"
#include "core/tokenizer.h"
#include "core/weights.h"

namespace hy3 {

struct ModelOptions {
    std::string backend = "auto";
    int threads = 0;  // 0: one per physical core this process may use
    ConfigOverrides overrides;
    bool use_mmap = true;                  // false: read the file into memory of our own
    bool mlock = false;                    // pin the file's pages
    std::optional<std::string> mtp_model;  // a file with only the MTP layer, for a model whose own has none
};

// The tokenizer that the file's tokenizer.ggml.* keys describe.
std::shared_ptr<const Tokenizer> read_tokenizer(const Gguf& file);

class Model {
  public:
    // Throws Error: format, unsupported, io or out_of_memory.
    Model(const std::string& path, const ModelOptions& options);
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;

    const std::shared_ptr<const Gguf>& file() const { return file_; }
    const std::shared_ptr<const Gguf>& mtp_file() const { return mtp_file_; }  // null: none of its own
    const Config& config() const { return config_; }
    const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
    const Weights& weights() const { return weights_; }
    Backend& backend() { return *backend_; }
    const RopeFrequencies& rope() const { return forward_.rope(); }
    const std::string& backend_name() const { return backend_name_; }

    // From now on `observer` is told of every step's products; null: nobody any more. Waits for a step under
    // way. Error(invalid_argument) while there is another one.
    void observe(ActivationObserver* observer);

    // The backend's buffers serve one step at a time: hold the lock while using forward().
    class Turn {
      public:
        Turn(Model& model, AbortCheck& abort);  // throws Error(aborted) if told to while waiting
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;
        Forward& forward() { return model_.forward_; }

      private:
        Model& model_;
        std::unique_lock<std::timed_mutex> lock_;
    };

  private:
    std::shared_ptr<const Gguf> file_;
    std::shared_ptr<const Gguf> mtp_file_;  // null: none
    Config config_;
    std::shared_ptr<const Tokenizer> tokenizer_;
    Weights weights_;
    std::unique_ptr<Backend> backend_;
    const std::string backend_name_;
    Forward forward_;
    std::timed_mutex mutex_;
};

}  // namespace hy3
