// What a backend does: the dozen fused operations of a decoder layer. The forward pass (core/forward.h) is
// written once over this interface. A backend owns its memory; pointers below are in it unless they say host.
//
// Every operation is row-wise independent: what it computes for a row depends on that row's inputs, the
// weights and the row's own cache, never on the other rows, the number of threads or where a chunk was cut.
// Reductions run in an order that is a fixed function of the column index (or, in attention, of the absolute
// position).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/kv_cache.h"
#include "core/rope.h"
#include "core/weights.h"

namespace hy3 {

// One row of a step: a token at a position of a sequence.
struct Row {
    int32_t token;
    int32_t position;       // place in the sequence and in its cache; attention goes up to it
    int32_t sequence;       // index into Batch::caches
    int32_t rope_position;  // what RoPE takes for the position; more than that after a jump
};

// The rows of one step: prefill is many rows of one sequence, decode one row of each.
struct Batch {
    std::span<const Row> rows;
    std::span<const KvCache* const> caches;  // per sequence; rows may be written at their positions
    const RopeTable* rope = nullptr;         // cosines and sines of each row's position
};

// Asked again and again while a step runs; true stops the step with Error(aborted).
class AbortCheck {
  public:
    virtual ~AbortCheck() = default;
    virtual bool operator()() = 0;
};

// Told what goes into the matrix products of a step, on the thread that runs the step.
class ActivationObserver {
  public:
    virtual ~ActivationObserver() = default;
    // `w` multiplies n rows of w.cols values: row rows[i] of x, or row i when rows is null. Which weight it
    // is shows in w.data. Rows of one sequence come in ascending order of position. x is in host memory.
    virtual void take(const Matrix& w, int64_t n, const float* x, const int32_t* rows) = 0;
};

class Backend {
  public:
    virtual ~Backend() = default;

    // Whom the operations ask, at least every few milliseconds, whether to go on. Null: nobody.
    void set_abort(AbortCheck* abort) { abort_ = abort; }

    // Who is told of the products' inputs. Null: nobody, and then it costs a comparison for each product.
    void set_observer(ActivationObserver* observer) { observer_ = observer; }
    ActivationObserver* observer() const { return observer_; }

    virtual std::string name() const = 0;
    virtual int threads() const { return 1; }

    // Memory. allocate throws Error(out_of_memory); release takes what allocate gave.
    virtual std::byte* allocate(size_t bytes) = 0;
    virtual void release(std::byte* block) noexcept = 0;
    virtual void upload(void* to, const void* host, size_t bytes) = 0;
    virtual void download(void* host, const void* from, size_t bytes) = 0;
    virtual void copy(void* to, const void* from, size_t bytes) = 0;

    // hidden (n, hidden) = embedding rows of the batch's tokens
    virtual void embed(const Batch& batch, const Matrix& table, float* hidden) = 0;
    // out (n, width) = RMSNorm(x) * weight
    virtual void norm(int64_t n, const float* x, const Floats& weight, float* out) = 0;
    // q (n, q_width) = RoPE(head norm(Wq x)); keys RoPE(head norm(Wk x)) and values Wv x go to the cache,
    // layer `slot`
    virtual void qkv(const Batch& batch, const Layer& layer, int slot, const float* x, float* q) = 0;
    // out (n, q_width): causal attention of each row over positions 0..its own of its sequence
    virtual void attention(const Batch& batch, int slot, const float* q, float* out) = 0;
    // hidden (n, hidden) += Wo x
    virtual void attention_output(int64_t n, const Layer& layer, const float* x, float* hidden) = 0;
    // hidden (n, hidden) += FFN(x)
    virtual void dense_ffn(int64_t n, const Ffn& ffn, const float* x, float* hidden) = 0;
    // experts (n, k) ascending, weights (n, k): the chosen experts of each row and their weights
    virtual void route(int64_t n, const Layer& layer, const float* x, int32_t* experts, float* weights) = 0;
    // hidden (n, hidden) += sum of the chosen experts, weighted, + shared expert
    virtual void experts(int64_t n, const Layer& layer, const float* x, const int32_t* experts,
                         const float* weights, float* hidden) = 0;
    // out (n, hidden) = eh_proj(concat(RMSNorm(embedding of the token), RMSNorm(state))); state (n, hidden)
    // post-norm
    virtual void mtp_input(const Batch& batch, const Mtp& mtp, const float* state, float* out) = 0;
    // logits (n, vocab) = head x
    virtual void head(int64_t n, const Matrix& head, const float* x, float* logits) = 0;

  protected:
    bool should_abort() const { return abort_ != nullptr && (*abort_)(); }
    void observe(const Matrix& w, int64_t n, const float* x, const int32_t* rows = nullptr) const {
        if (observer_ != nullptr) observer_->take(w, n, x, rows);
    }

  private:
    AbortCheck* abort_ = nullptr;
    ActivationObserver* observer_ = nullptr;
};

struct BackendInfo {
    std::string name;
    std::string device;
    uint64_t memory;  // bytes
};

// Backends that this build and machine offer, the preferred one first (core/backends.cpp knows them all).
std::vector<BackendInfo> available_backends();

// name: "auto", "reference", "cpu". threads 0: one per physical core that this process may use.
// Throws Error(invalid_argument) for an unknown name, listing the known ones.
std::unique_ptr<Backend> make_backend(const std::string& name, const Config& config, int threads);

}  // namespace hy3
