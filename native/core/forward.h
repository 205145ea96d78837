// The forward pass of a Hy3 model, written once over the Backend interface. A step takes rows of any number
// of sequences through the trunk, and the MTP layer through the same block code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/backend.h"

namespace hy3 {

// A buffer in a backend's memory that grows and is reused from step to step.
class Buffer {
  public:
    explicit Buffer(Backend& backend) : backend_(backend) {}
    ~Buffer() { backend_.release(block_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    template <typename T>
    T* get(int64_t count) {
        return reinterpret_cast<T*>(reserve(static_cast<size_t>(count) * sizeof(T)));
    }

  private:
    std::byte* reserve(size_t bytes);

    Backend& backend_;
    std::byte* block_ = nullptr;
    size_t bytes_ = 0;
};

class Forward {
  public:
    Forward(Backend& backend, const Config& config, const Weights& weights);

    // Runs the rows through the trunk, writing their keys and values to the caches. Returns the post-norm
    // hidden states (n, hidden) in the backend's memory, valid until the next call.
    const float* trunk(std::span<const Row> rows, std::span<const KvCache* const> caches);

    // The MTP layer for rows whose token is the one AFTER their position; `state` (n, hidden) are the
    // post-norm states of their positions. Returns the layer's own post-norm states, valid until the next
    // call.
    const float* mtp(std::span<const Row> rows, std::span<const KvCache* const> caches, const float* state);

    // Logits of some rows of post-norm states: states row rows[i] goes to host_logits[i] (vocab).
    void head(std::span<const int64_t> rows, const float* states, std::span<float* const> host_logits) {
        run_head(weights_.head, rows, states, host_logits);
    }
    void mtp_head(std::span<const int64_t> rows, const float* states, std::span<float* const> host_logits) {
        run_head(weights_.mtp.head, rows, states, host_logits);
    }

    const RopeFrequencies& rope() const { return frequencies_; }

    // Rows of logits that head() computes at once; the buffer is that times the vocabulary (15 MB at
    // 120,832).
    static constexpr size_t head_rows = 32;

  private:
    void prepare(std::span<const Row> rows, std::span<const KvCache* const> caches);
    void block(const Layer& layer, int slot, float* hidden);
    void run_head(const Matrix& head, std::span<const int64_t> rows, const float* states,
                  std::span<float* const> host_logits);

    Backend& backend_;
    const Config& config_;
    const Weights& weights_;
    RopeFrequencies frequencies_;
    RopeTable rope_;
    Batch batch_;
    Buffer hidden_, normed_, q_, attention_, experts_, expert_weights_, out_, mtp_out_, picked_, logits_;
};

}  // namespace hy3
