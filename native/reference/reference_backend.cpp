#include "reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/host_memory.h"
#include "core/routing.h"
#include "quant/quant.h"
#include "reference/cache_view.h"

namespace hy3 {
namespace {

using Vector = std::vector<float>;

float silu(float x) {
    return x / (1.0f + std::exp(-x));
}

// y (rows) = W x. Weights of any type are brought to float32 a row at a time. Four partial sums keep the
// rounding error of long rows small.
void multiply(const Matrix& w, const float* x, float* y) {
    Vector row(static_cast<size_t>(w.cols));
    for (int64_t r = 0; r < w.rows; r++) {
        dequantize(w.type, w.row(r), row.data(), w.cols);
        float sum[4] = {};
        for (int64_t c = 0; c < w.cols; c++) sum[c % 4] += row[static_cast<size_t>(c)] * x[c];
        y[r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    }
}

// y = x * rsqrt(mean(x^2) + eps) * weight
void rms_norm(int64_t size, float eps, const float* x, const float* weight, float* y) {
    float squares = 0.0f;
    for (int64_t i = 0; i < size; i++) squares += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
    for (int64_t i = 0; i < size; i++) y[i] = x[i] * scale * weight[i];
}

// Rotates dimension d against d + half.
void rotate(int half, const float* cos, const float* sin, float* head) {
    for (int d = 0; d < half; d++) {
        const float a = head[d], b = head[d + half];
        head[d] = a * cos[d] - b * sin[d];
        head[d + half] = b * cos[d] + a * sin[d];
    }
}

class ReferenceBackend final : public HostBackend {
  public:
    explicit ReferenceBackend(const Config& config) : c_(config) {}

    std::string name() const override { return "reference"; }

    void embed(const Batch& batch, const Matrix& table, float* hidden) override {
        for (const Row& row : batch.rows) {
            dequantize(table.type, table.row(row.token), hidden, c_.hidden);
            hidden += c_.hidden;
        }
    }

    void norm(int64_t n, const float* x, const Floats& weight, float* out) override {
        for (int64_t r = 0; r < n; r++)
            rms_norm(weight.size, c_.rms_eps, x + r * weight.size, weight.data, out + r * weight.size);
    }

    void qkv(const Batch& batch, const Layer& layer, int slot, const float* x, float* q) override {
        Vector k(static_cast<size_t>(c_.kv_width())), v(k.size());
        for (size_t r = 0; r < batch.rows.size(); r++, x += c_.hidden, q += c_.q_width()) {
            poll();
            const Row& row = batch.rows[r];
            const float* cos = batch.rope->cos(static_cast<int64_t>(r));
            const float* sin = batch.rope->sin(static_cast<int64_t>(r));
            product(layer.q, x, q);
            product(layer.k, x, k.data());
            product(layer.v, x, v.data());
            for (int h = 0; h < c_.n_heads; h++) {
                float* head = q + h * c_.head_dim;
                rms_norm(c_.head_dim, c_.rms_eps, head, layer.q_norm.data, head);
                rotate(c_.head_dim / 2, cos, sin, head);
            }
            const KvCache& cache = *batch.caches[static_cast<size_t>(row.sequence)];
            for (int h = 0; h < c_.n_kv_heads; h++) {
                float* head = k.data() + h * c_.head_dim;
                rms_norm(c_.head_dim, c_.rms_eps, head, layer.k_norm.data, head);
                rotate(c_.head_dim / 2, cos, sin, head);
                CacheView(cache, slot, h, KvPart::keys).write(row.position, head);
                CacheView(cache, slot, h, KvPart::values).write(row.position, v.data() + h * c_.head_dim);
            }
        }
    }

    void attention(const Batch& batch, int slot, const float* q, float* out) override {
        const int group = c_.n_heads / c_.n_kv_heads;
        for (const Row& row : batch.rows) {
            poll();
            for (int h = 0; h < c_.n_heads; h++)
                attend(*batch.caches[static_cast<size_t>(row.sequence)], slot, h / group, row.position,
                       q + h * c_.head_dim, out + h * c_.head_dim);
            q += c_.q_width();
            out += c_.q_width();
        }
    }

    void attention_output(int64_t n, const Layer& layer, const float* x, float* hidden) override {
        Vector y(static_cast<size_t>(c_.hidden));
        for (int64_t r = 0; r < n; r++, x += c_.q_width(), hidden += c_.hidden) {
            product(layer.o, x, y.data());
            for (int i = 0; i < c_.hidden; i++) hidden[i] += y[static_cast<size_t>(i)];
        }
    }

    void dense_ffn(int64_t n, const Ffn& ffn, const float* x, float* hidden) override {
        Vector y(static_cast<size_t>(c_.hidden));
        for (int64_t r = 0; r < n; r++, x += c_.hidden, hidden += c_.hidden) {
            poll();
            ffn_forward(ffn, x, y.data());
            for (int i = 0; i < c_.hidden; i++) hidden[i] += y[static_cast<size_t>(i)];
        }
    }

    void route(int64_t n, const Layer& layer, const float* x, int32_t* experts, float* weights) override {
        for (int64_t r = 0; r < n; r++)
            route_row(layer, x + r * c_.hidden, experts + r * c_.n_experts_used,
                      weights + r * c_.n_experts_used);
    }

    void experts(int64_t n, const Layer& layer, const float* x, const int32_t* experts, const float* weights,
                 float* hidden) override {
        Vector y(static_cast<size_t>(c_.hidden)), sum(y.size());
        for (int64_t r = 0; r < n; r++, x += c_.hidden, hidden += c_.hidden) {
            poll();
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (int k = 0; k < c_.n_experts_used; k++) {
                ffn_forward(layer.experts.expert(*experts++), x, y.data());
                const float weight = *weights++;
                for (size_t i = 0; i < sum.size(); i++) sum[i] += weight * y[i];
            }
            if (layer.shared.gate) {
                ffn_forward(layer.shared, x, y.data());
                for (size_t i = 0; i < sum.size(); i++) sum[i] += y[i];
            }
            for (int i = 0; i < c_.hidden; i++) hidden[i] += sum[static_cast<size_t>(i)];
        }
    }

    void mtp_input(const Batch& batch, const Mtp& mtp, const float* state, float* out) override {
        Vector joined(2 * static_cast<size_t>(c_.hidden));
        for (const Row& row : batch.rows) {
            dequantize(mtp.embed.type, mtp.embed.row(row.token), joined.data(), c_.hidden);
            rms_norm(c_.hidden, c_.rms_eps, joined.data(), mtp.enorm.data, joined.data());
            rms_norm(c_.hidden, c_.rms_eps, state, mtp.hnorm.data, joined.data() + c_.hidden);
            product(mtp.eh_proj, joined.data(), out);
            state += c_.hidden;
            out += c_.hidden;
        }
    }

    void head(int64_t n, const Matrix& head, const float* x, float* logits) override {
        for (int64_t r = 0; r < n; r++) product(head, x + r * c_.hidden, logits + r * c_.vocab);
    }

  private:
    void product(const Matrix& w, const float* x, float* y) const {
        multiply(w, x, y);
        observe(w, 1, x);
    }

    void ffn_forward(const Ffn& ffn, const float* x, float* y) const {
        Vector gate(static_cast<size_t>(ffn.gate.rows)), up(gate.size());
        product(ffn.gate, x, gate.data());
        product(ffn.up, x, up.data());
        for (size_t i = 0; i < gate.size(); i++) gate[i] = silu(gate[i]) * up[i];
        product(ffn.down, gate.data(), y);
    }

    // Softmax over all positions at once, keys and values read back from the cache.
    void attend(const KvCache& cache, int slot, int kv_head, int64_t position, const float* q,
                float* out) const {
        const CacheView keys(cache, slot, kv_head, KvPart::keys),
            values(cache, slot, kv_head, KvPart::values);
        const float scale = 1.0f / std::sqrt(static_cast<float>(c_.head_dim));
        Vector row(static_cast<size_t>(c_.head_dim)), scores(static_cast<size_t>(position) + 1);
        for (size_t p = 0; p < scores.size(); p++) {
            keys.read(static_cast<int64_t>(p), row.data());
            scores[p] = std::inner_product(row.begin(), row.end(), q, 0.0f) * scale;
        }
        const float largest = *std::max_element(scores.begin(), scores.end());
        float total = 0.0f;
        for (float& score : scores) total += score = std::exp(score - largest);
        std::fill(out, out + c_.head_dim, 0.0f);
        for (size_t p = 0; p < scores.size(); p++) {
            values.read(static_cast<int64_t>(p), row.data());
            for (int d = 0; d < c_.head_dim; d++) out[d] += scores[p] / total * row[static_cast<size_t>(d)];
        }
    }

    void route_row(const Layer& layer, const float* x, int32_t* experts, float* weights) const {
        Vector score(static_cast<size_t>(c_.n_experts));
        for (int e = 0; e < c_.n_experts; e++)
            score[static_cast<size_t>(e)] = std::inner_product(
                x, x + c_.hidden, layer.router.data + static_cast<int64_t>(e) * c_.hidden, 0.0f);
        choose_experts(c_, layer.router_bias, score.data(), experts, weights);
    }

    // Once a row and operation: often enough for the small models this backend is for.
    void poll() const {
        if (should_abort()) fail(Status::aborted, "The step was stopped.");
    }

    const Config c_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const Config& config) {
    return std::make_unique<ReferenceBackend>(config);
}

}  // namespace hy3
