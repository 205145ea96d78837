#include "core/forward.h"

#include <algorithm>

namespace hy3 {
std::byte* Buffer::reserve(size_t bytes) {
    if (bytes > bytes_) {
        backend_.release(block_);
        block_ = nullptr;
        bytes_ = 0;
        block_ = backend_.allocate(bytes);
        bytes_ = bytes;
    }
    return block_;
}

Forward::Forward(Backend& backend, const Config& config, const Weights& weights)
    : backend_(backend),
      config_(config),
      weights_(weights),
      frequencies_(rope_frequencies(config.rope, config.head_dim)),
      hidden_(backend),
      normed_(backend),
      q_(backend),
      attention_(backend),
      experts_(backend),
      expert_weights_(backend),
      out_(backend),
      mtp_out_(backend),
      picked_(backend),
      logits_(backend) {}

void Forward::prepare(std::span<const Row> rows, std::span<const KvCache* const> caches) {
    std::vector<int32_t> positions;
    positions.reserve(rows.size());
    for (const Row& row : rows) positions.push_back(row.rope_position);
    fill_rope_table(frequencies_, positions, rope_);
    batch_ = {rows, caches, &rope_};
}

// One decoder block: h += Attn(RMSNorm(h)); h += FFN(RMSNorm(h)).
void Forward::block(const Layer& layer, int slot, float* hidden) {
    const auto n = static_cast<int64_t>(batch_.rows.size());
    float* normed = normed_.get<float>(n * config_.hidden);
    float* q = q_.get<float>(n * config_.q_width());
    float* attention = attention_.get<float>(n * config_.q_width());

    backend_.norm(n, hidden, layer.attn_norm, normed);
    backend_.qkv(batch_, layer, slot, normed, q);
    backend_.attention(batch_, slot, q, attention);
    backend_.attention_output(n, layer, attention, hidden);
    backend_.norm(n, hidden, layer.ffn_norm, normed);
    if (layer.sparse) {
        int32_t* experts = experts_.get<int32_t>(n * config_.n_experts_used);
        float* weights = expert_weights_.get<float>(n * config_.n_experts_used);
        backend_.route(n, layer, normed, experts, weights);
        backend_.experts(n, layer, normed, experts, weights, hidden);
    } else {
        backend_.dense_ffn(n, layer.ffn, normed, hidden);
    }
}

const float* Forward::trunk(std::span<const Row> rows, std::span<const KvCache* const> caches) {
    const auto n = static_cast<int64_t>(rows.size());
    prepare(rows, caches);
    float* hidden = hidden_.get<float>(n * config_.hidden);
    backend_.embed(batch_, weights_.embed, hidden);
    for (int l = 0; l < config_.n_layers; l++) block(weights_.layers[static_cast<size_t>(l)], l, hidden);
    float* out = out_.get<float>(n * config_.hidden);
    backend_.norm(n, hidden, weights_.norm, out);
    return out;
}

const float* Forward::mtp(std::span<const Row> rows, std::span<const KvCache* const> caches,
                          const float* state) {
    const auto n = static_cast<int64_t>(rows.size());
    prepare(rows, caches);
    float* hidden = hidden_.get<float>(n * config_.hidden);
    backend_.mtp_input(batch_, weights_.mtp, state, hidden);
    block(weights_.layers[static_cast<size_t>(config_.n_layers)], config_.n_layers, hidden);
    float* out = mtp_out_.get<float>(n * config_.hidden);
    backend_.norm(n, hidden, weights_.mtp.norm, out);
    return out;
}

void Forward::run_head(const Matrix& head, std::span<const int64_t> rows, const float* states,
                       std::span<float* const> host_logits) {
    const auto width = static_cast<size_t>(config_.hidden), vocab = static_cast<size_t>(config_.vocab);
    for (size_t first = 0; first < rows.size(); first += head_rows) {
        const size_t count = std::min(head_rows, rows.size() - first);
        float* picked = picked_.get<float>(static_cast<int64_t>(count * width));
        float* logits = logits_.get<float>(static_cast<int64_t>(count * vocab));
        for (size_t i = 0; i < count; i++)
            backend_.copy(picked + i * width, states + static_cast<size_t>(rows[first + i]) * width,
                          width * sizeof(float));
        backend_.head(static_cast<int64_t>(count), head, picked, logits);
        for (size_t i = 0; i < count; i++)
            backend_.download(host_logits[first + i], logits + i * vocab, vocab * sizeof(float));
    }
}

}  // namespace hy3
