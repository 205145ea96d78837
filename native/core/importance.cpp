#include "core/importance.h"

#include <utility>

#include "core/error.h"

namespace hy3 {

ImportanceCollector::ImportanceCollector(std::shared_ptr<Model> model) : model_(std::move(model)) {
    const Weights& weights = model_->weights();
    const Config& config = model_->config();
    for (size_t l = 0; l < weights.layers.size(); l++) add_block(cat("blk.", l, "."), weights.layers[l]);
    // A tied head is the embedding, whose rows are looked up at the other end: only the head's products
    // count.
    add({config.tied_head ? "token_embd.weight" : "output.weight"}, {&weights.head});
    if (config.n_mtp_layers > 0) {
        const std::string glue = cat("blk.", config.n_layers, ".nextn.");
        add({glue + "eh_proj.weight"}, {&weights.mtp.eh_proj});
        if (weights.mtp.head.data != weights.head.data)
            add({glue + "shared_head_head.weight"}, {&weights.mtp.head});
    }
    model_->observe(this);
}

ImportanceCollector::~ImportanceCollector() {
    model_->observe(nullptr);
}

void ImportanceCollector::add(const std::vector<std::string>& names,
                              const std::vector<const Matrix*>& matrices) {
    const auto cols = static_cast<size_t>(matrices.front()->cols);
    sums_.push_back(std::make_unique<Sums>());
    Sums& sums = *sums_.back();
    sums.squares.resize(matrices.size() * cols);
    sums.counts.resize(matrices.size());
    for (size_t m = 0; m < matrices.size(); m++) places_[matrices[m]->data] = {&sums, m};
    for (const std::string& name : names)
        entries_.push_back({name, static_cast<int64_t>(cols), sums.squares, sums.counts});
}

void ImportanceCollector::add_ffn(const std::string& block, const std::string& suffix, const Ffn& ffn) {
    add({block + "ffn_gate" + suffix, block + "ffn_up" + suffix}, {&ffn.gate});
    add({block + "ffn_down" + suffix}, {&ffn.down});
}

void ImportanceCollector::add_experts(const std::string& block, const Experts& experts) {
    std::vector<Ffn> all;
    for (int e = 0; e < experts.count(); e++) all.push_back(experts.expert(e));
    std::vector<const Matrix*> gates, downs;
    for (const Ffn& ffn : all) {
        gates.push_back(&ffn.gate);
        downs.push_back(&ffn.down);
    }
    const std::string fused = block + "ffn_gate_up_exps.weight";
    if (model_->file()->tensor(fused) != nullptr)
        add({fused}, gates);
    else
        add({block + "ffn_gate_exps.weight", block + "ffn_up_exps.weight"}, gates);
    add({block + "ffn_down_exps.weight"}, downs);
}

void ImportanceCollector::add_block(const std::string& block, const Layer& layer) {
    const std::string fused = block + "attn_qkv.weight";
    if (model_->file()->tensor(fused) != nullptr)
        add({fused}, {&layer.q});
    else
        add({block + "attn_q.weight", block + "attn_k.weight", block + "attn_v.weight"}, {&layer.q});
    add({block + "attn_output.weight"}, {&layer.o});
    if (!layer.sparse) {
        add_ffn(block, ".weight", layer.ffn);
        return;
    }
    add_experts(block, layer.experts);
    if (layer.shared.gate) add_ffn(block, "_shexp.weight", layer.shared);
}

void ImportanceCollector::take(const Matrix& w, int64_t n, const float* x, const int32_t* rows) {
    const auto place = places_.find(w.data);
    if (place == places_.end()) return;  // the router; k, v and up, whose rows came with q and gate
    const size_t matrix = place->second.matrix;
    double* squares = place->second.sums->squares.data() + matrix * static_cast<size_t>(w.cols);
    for (int64_t i = 0; i < n; i++) {
        const float* row = x + (rows == nullptr ? i : rows[i]) * w.cols;
        for (int64_t c = 0; c < w.cols; c++) {
            const double value = row[c];
            squares[c] += value * value;
        }
    }
    place->second.sums->counts[matrix] += n;
}

}  // namespace hy3
