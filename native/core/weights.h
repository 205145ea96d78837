// The model's weights: views of the mapped file, checked against the configuration. Large matrices stay where
// they are, in the type they have; only norms, router and selection bias are brought to float32 when they are
// not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "quant/types.h"

namespace hy3 {

class Gguf;

// A row-major matrix of a block format: y = W x has `rows` outputs and `cols` inputs.
struct Matrix {
    Type type = Type::F32;
    int64_t rows = 0;
    int64_t cols = 0;
    const uint8_t* data = nullptr;
    uint64_t row_bytes = 0;

    const uint8_t* row(int64_t r) const { return data + static_cast<uint64_t>(r) * row_bytes; }
    // Rows [first, first + count) as a matrix of their own.
    Matrix slice(int64_t first, int64_t count) const { return {type, count, cols, row(first), row_bytes}; }
    explicit operator bool() const { return data != nullptr; }
};

// Float32 values: in place in the file where it has them aligned as float32, else an own copy.
struct Floats {
    const float* data = nullptr;
    int64_t size = 0;
    std::vector<float> own;
};

struct Ffn {      // down(silu(gate(x)) * up(x))
    Matrix gate;  // (ffn, hidden)
    Matrix up;    // (ffn, hidden)
    Matrix down;  // (hidden, ffn)
};

// Where expert e's weights are. The one place that knows, so that experts can later come from elsewhere than
// the mapped file.
class Experts {
  public:
    Experts() = default;
    // gate and up (n_experts * ffn, hidden), down (n_experts * hidden, ffn): the experts one after the other.
    Experts(Matrix gate, Matrix up, Matrix down, int n_experts);
    // Gate and up fused, (n_experts * 2 ffn, hidden): for each expert the gate rows first.
    static Experts fused(Matrix gate_up, Matrix down, int n_experts);

    Ffn expert(int e) const;
    int count() const { return count_; }

  private:
    Matrix gate_, up_, down_;
    int64_t gate_stride_ = 0;  // rows from one expert's gate to the next one's
    int count_ = 0;
};

struct Layer {
    Floats attn_norm;       // (hidden)
    Matrix q, k, v;         // (q_width | kv_width, hidden)
    Floats q_norm, k_norm;  // (head_dim)
    Matrix o;               // (hidden, q_width)
    Floats ffn_norm;        // (hidden)
    bool sparse = false;
    Ffn ffn;             // dense layers
    Floats router;       // (n_experts, hidden), sparse layers from here on
    Floats router_bias;  // (n_experts), added for the choice only; size 0: none
    Experts experts;
    Ffn shared;  // no gate on it; empty when there is no shared expert
};

// The glue of the MTP layer; its decoder block is the layer after the trunk's last.
struct Mtp {
    Matrix eh_proj;             // (hidden, 2 hidden): embedding half first
    Floats enorm, hnorm, norm;  // (hidden); norm is applied before the head
    Matrix embed, head;         // the trunk's unless the file brings its own
};

struct Weights {
    Matrix embed;               // (vocab, hidden)
    Floats norm;                // (hidden), before the head
    Matrix head;                // (vocab, hidden); the embedding itself when tied
    std::vector<Layer> layers;  // n_blocks: the MTP block last
    Mtp mtp;

    std::vector<std::shared_ptr<const Gguf>> files;  // keeps the mappings alive
};

// mtp: the file with the MTP layer, if that is another one; else null. Throws Error(format) naming the tensor
// that is missing or misshapen.
Weights load_weights(std::shared_ptr<const Gguf> file, std::shared_ptr<const Gguf> mtp, const Config& config);

}  // namespace hy3
