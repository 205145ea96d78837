#include "core/weights.h"

#include <utility>

#include "core/error.h"
#include "core/gguf.h"
#include "quant/quant.h"

namespace hy3 {
namespace {

// Finds tensors by name and checks their shapes; remembers nothing else.
class TensorLoader {
  public:
    explicit TensorLoader(const Gguf& file) : file_(file) {}

    bool has(const std::string& name) const { return file_.tensor(name) != nullptr; }

    Matrix matrix(const std::string& name, int64_t rows, int64_t cols) const {
        return view(require(name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)}), rows, cols);
    }

    // A stack of n matrices (rows, cols), seen as one of n * rows rows.
    Matrix stack(const std::string& name, int n, int64_t rows, int64_t cols) const {
        const TensorInfo& info = require(
            name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows), static_cast<uint64_t>(n)});
        return view(info, n * rows, cols);
    }

    Floats vector(const std::string& name, int64_t size) const {
        return floats(require(name, {static_cast<uint64_t>(size)}), size);
    }

    Floats float_matrix(const std::string& name, int64_t rows, int64_t cols) const {
        return floats(require(name, {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)}), rows * cols);
    }

  private:
    const TensorInfo& require(const std::string& name, const Shape& shape) const {
        const TensorInfo* info = file_.tensor(name);
        if (info == nullptr)
            fail(Status::format, file_.path(), ": the tensor ", name,
                 " is missing. The file is incomplete; convert or download it again.");
        if (!(info->shape == shape))
            fail(Status::format, file_.path(), ": the tensor ", name, " has the shape ", info->shape.text(),
                 " where the keys ask for ", shape.text(), ". The file is damaged.");
        if (!type_info(info->type).dequantizable)
            fail(Status::unsupported, file_.path(), ": the tensor ", name, " is of type ",
                 type_name(info->type), ", which holds no weights. Convert the model again.");
        return *info;
    }

    Matrix view(const TensorInfo& info, int64_t rows, int64_t cols) const {
        return {info.type, rows, cols, info.data, row_bytes(info.type, static_cast<uint64_t>(cols))};
    }

    Floats floats(const TensorInfo& info, int64_t size) const {
        Floats out;
        out.size = size;
        if (info.type == Type::F32 && reinterpret_cast<uintptr_t>(info.data) % alignof(float) == 0) {
            out.data = reinterpret_cast<const float*>(info.data);
            return out;
        }
        out.own.resize(static_cast<size_t>(size));
        dequantize(info.type, info.data, out.own.data(), size);
        out.data = out.own.data();
        return out;
    }

    const Gguf& file_;
};

Experts load_experts(const TensorLoader& load, const std::string& block, const Config& c) {
    const Matrix down = load.stack(block + "ffn_down_exps.weight", c.n_experts, c.hidden, c.expert_ffn);
    const std::string fused = block + "ffn_gate_up_exps.weight";
    if (load.has(fused))
        return Experts::fused(
            load.stack(fused, c.n_experts, 2 * static_cast<int64_t>(c.expert_ffn), c.hidden), down,
            c.n_experts);
    return Experts(load.stack(block + "ffn_gate_exps.weight", c.n_experts, c.expert_ffn, c.hidden),
                   load.stack(block + "ffn_up_exps.weight", c.n_experts, c.expert_ffn, c.hidden), down,
                   c.n_experts);
}

Layer load_layer(const TensorLoader& load, const Config& c, int index) {
    const std::string block = cat("blk.", index, ".");
    Layer layer;
    layer.attn_norm = load.vector(block + "attn_norm.weight", c.hidden);
    const std::string fused = block + "attn_qkv.weight";
    if (load.has(fused)) {
        const int64_t q = c.q_width(), kv = c.kv_width();
        const Matrix all = load.matrix(fused, q + 2 * kv, c.hidden);
        layer.q = all.slice(0, q);
        layer.k = all.slice(q, kv);
        layer.v = all.slice(q + kv, kv);
    } else {
        layer.q = load.matrix(block + "attn_q.weight", c.q_width(), c.hidden);
        layer.k = load.matrix(block + "attn_k.weight", c.kv_width(), c.hidden);
        layer.v = load.matrix(block + "attn_v.weight", c.kv_width(), c.hidden);
    }
    layer.q_norm = load.vector(block + "attn_q_norm.weight", c.head_dim);
    layer.k_norm = load.vector(block + "attn_k_norm.weight", c.head_dim);
    layer.o = load.matrix(block + "attn_output.weight", c.hidden, c.q_width());
    layer.ffn_norm = load.vector(block + "ffn_norm.weight", c.hidden);
    layer.sparse = c.sparse[static_cast<size_t>(index)];
    if (!layer.sparse) {
        layer.ffn = {load.matrix(block + "ffn_gate.weight", c.ffn, c.hidden),
                     load.matrix(block + "ffn_up.weight", c.ffn, c.hidden),
                     load.matrix(block + "ffn_down.weight", c.hidden, c.ffn)};
        return layer;
    }
    layer.router = load.float_matrix(block + "ffn_gate_inp.weight", c.n_experts, c.hidden);
    for (const char* name : {"exp_probs_b", "exp_probs_b.bias"})  // both names are published
        if (load.has(block + name)) layer.router_bias = load.vector(block + name, c.n_experts);
    layer.experts = load_experts(load, block, c);
    if (c.shared_ffn > 0)
        layer.shared = {load.matrix(block + "ffn_gate_shexp.weight", c.shared_ffn, c.hidden),
                        load.matrix(block + "ffn_up_shexp.weight", c.shared_ffn, c.hidden),
                        load.matrix(block + "ffn_down_shexp.weight", c.hidden, c.shared_ffn)};
    return layer;
}

Mtp load_glue(const TensorLoader& load, const Config& c, const Weights& trunk) {
    const std::string block = cat("blk.", c.n_layers, ".nextn.");
    Mtp mtp;
    mtp.eh_proj = load.matrix(block + "eh_proj.weight", c.hidden, 2 * static_cast<int64_t>(c.hidden));
    mtp.enorm = load.vector(block + "enorm.weight", c.hidden);
    mtp.hnorm = load.vector(block + "hnorm.weight", c.hidden);
    mtp.norm = load.vector(block + "shared_head_norm.weight", c.hidden);
    const std::string embed = block + "embed_tokens.weight", head = block + "shared_head_head.weight";
    mtp.embed = load.has(embed) ? load.matrix(embed, c.vocab, c.hidden) : trunk.embed;
    mtp.head = load.has(head) ? load.matrix(head, c.vocab, c.hidden) : trunk.head;
    return mtp;
}

}  // namespace

Experts::Experts(Matrix gate, Matrix up, Matrix down, int n_experts)
    : gate_(gate), up_(up), down_(down), gate_stride_(gate.rows / n_experts), count_(n_experts) {}

Experts Experts::fused(Matrix gate_up, Matrix down, int n_experts) {
    Experts out(gate_up, gate_up, down, n_experts);
    const int64_t ffn = out.gate_stride_ / 2;
    out.up_ = gate_up.slice(ffn, gate_up.rows - ffn);
    return out;
}

Ffn Experts::expert(int e) const {
    const int64_t ffn = down_.cols, hidden = down_.rows / count_;
    return {gate_.slice(e * gate_stride_, ffn), up_.slice(e * gate_stride_, ffn),
            down_.slice(e * hidden, hidden)};
}

Weights load_weights(std::shared_ptr<const Gguf> file, std::shared_ptr<const Gguf> mtp,
                     const Config& config) {
    const TensorLoader load(*file), load_mtp(mtp ? *mtp : *file);
    Weights w;
    w.embed = load.matrix("token_embd.weight", config.vocab, config.hidden);
    w.norm = load.vector("output_norm.weight", config.hidden);
    w.head = config.tied_head ? w.embed : load.matrix("output.weight", config.vocab, config.hidden);
    for (int l = 0; l < config.n_layers; l++) w.layers.push_back(load_layer(load, config, l));
    if (config.n_mtp_layers > 0) {
        w.layers.push_back(load_layer(load_mtp, config, config.n_layers));
        w.mtp = load_glue(load_mtp, config, w);
    }
    w.files.push_back(std::move(file));
    if (mtp) w.files.push_back(std::move(mtp));
    return w;
}

}  // namespace hy3
