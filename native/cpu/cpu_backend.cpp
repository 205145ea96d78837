#include "cpu/cpu_backend.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/host_memory.h"
#include "core/routing.h"
#include "cpu/activations.h"
#include "cpu/attention.h"
#include "cpu/cores.h"
#include "cpu/threads.h"
#include "quant/quant.h"

namespace hy3 {
namespace cpu {
namespace {

int64_t panels(int64_t rows) {
    return (rows + kPanel - 1) / kPanel;
}

void copy_results(const float* from, float* to, int count) {
    std::copy_n(from, count, to);
}

// The outputs and in-between values of FFNs of one width.
struct FfnSet {
    int64_t n = 0;             // rows
    int64_t width = 0;         // of the FFN
    Array<float> middle;       // (n, width): silu(gate) * up
    QuantizedArray quantized;  // the same in int8
    Array<float> out;          // (n, hidden)
};

// Rows that use one FFN: [first, first + count) of a set.
struct FfnGroup {
    Ffn weights;
    FfnSet* set;
    int64_t first;
    int64_t count;
    const int32_t* inputs;  // which activation row each takes; null: row i takes row i
};

class CpuBackend final : public HostBackend {
  public:
    CpuBackend(const Config& config, int threads)
        : c_(config), k_(select_kernels()), pool_(threads), per_thread_(static_cast<size_t>(pool_.size())) {}

    std::string name() const override { return "cpu"; }
    int threads() const override { return pool_.size(); }

    void embed(const Batch& batch, const Matrix& table, float* hidden) override {
        for (const Row& row : batch.rows) {
            dequantize(table.type, table.row(row.token), hidden, c_.hidden);
            hidden += c_.hidden;
        }
    }

    void norm(int64_t n, const float* x, const Floats& weight, float* out) override {
        const int64_t width = weight.size;
        loop(n, 2 * width, [&](int64_t r, int) {
            k_.rms_norm(width, c_.rms_eps, x + r * width, weight.data, out + r * width);
        });
    }

    void qkv(const Batch& batch, const Layer& layer, int slot, const float* x, float* q) override {
        const auto n = static_cast<int64_t>(batch.rows.size());
        float* k = k_rows_.get(n * c_.kv_width());
        float* v = v_rows_.get(n * c_.kv_width());
        const std::array products = {Product{layer.q, q}, Product{layer.k, k}, Product{layer.v, v}};
        multiply(n, x, products, copy_results);
        loop(n, kSlow * (c_.q_width() + c_.kv_width()), [&](int64_t r, int) {
            finish_heads(layer.q_norm, c_.n_heads, batch, r, q + r * c_.q_width());
            finish_heads(layer.k_norm, c_.n_kv_heads, batch, r, k + r * c_.kv_width());
            write_cache(batch, r, slot, k + r * c_.kv_width(), v + r * c_.kv_width());
        });
    }

    void attention(const Batch& batch, int slot, const float* q, float* out) override {
        plan_.make(batch, slot, c_, q, out);
        if (plan_.by_span(pool_.size())) return attention_by_span(attention_work(batch));
        const auto n = static_cast<int64_t>(plan_.tiles().size());
        loop(n, attention_work(batch) / n, [&](int64_t task, int thread) {
            const AttentionTile& tile = plan_.tiles()[static_cast<size_t>(task)];
            const int64_t floats = partial_floats(tile.queries(), c_.head_dim);
            float* sum = own(thread).partial.get(2 * floats);
            for (int64_t span = 0; span < tile.spans(); span++) {
                k_.attend_span(tile, span, span == 0 ? sum : sum + floats,
                               attention_scratch_of(tile, thread));
                if (span > 0) k_.add_span(tile, sum + floats, sum);
                if (pool_.stopping(thread)) return;
            }
            k_.finish_attention(tile, sum);
        });
    }

    void attention_output(int64_t n, const Layer& layer, const float* x, float* hidden) override {
        const std::array products = {Product{layer.o, hidden}};
        multiply(n, x, products,
                 [this](const float* from, float* to, int count) { k_.add(count, from, to); });
    }

    void dense_ffn(int64_t n, const Ffn& ffn, const float* x, float* hidden) override {
        begin_set(every_row_, n, ffn);
        groups_.assign(1, {ffn, &every_row_, 0, n, nullptr});
        run_ffns(n, x);
        const float* y = every_row_.out.data();
        loop(n, c_.hidden,
             [&](int64_t r, int) { k_.add(c_.hidden, y + r * c_.hidden, hidden + r * c_.hidden); });
    }

    void route(int64_t n, const Layer& layer, const float* x, int32_t* experts, float* weights) override {
        float* logits = router_logits_.get(n * c_.n_experts);
        const Matrix router{Type::F32, c_.n_experts, c_.hidden,
                            reinterpret_cast<const uint8_t*>(layer.router.data),
                            static_cast<uint64_t>(c_.hidden) * sizeof(float)};
        const std::array products = {Product{router, logits}};
        multiply(n, x, products, copy_results);
        loop(n, kSlow * c_.n_experts_used * c_.n_experts, [&](int64_t r, int) {
            choose_experts(c_, layer.router_bias, logits + r * c_.n_experts, experts + r * c_.n_experts_used,
                           weights + r * c_.n_experts_used);
        });
    }

    // Rows are sorted by expert, so that each active expert's weights are read once however many rows use it.
    // The shared expert is one more group, with all rows.
    void experts(int64_t n, const Layer& layer, const float* x, const int32_t* experts, const float* weights,
                 float* hidden) override {
        const int64_t k = c_.n_experts_used;
        const bool shared = static_cast<bool>(layer.shared.gate);
        groups_.clear();
        if (shared) {  // first: its tasks are the largest, and a late large one leaves other threads waiting
            begin_set(every_row_, n, layer.shared);
            groups_.push_back({layer.shared, &every_row_, 0, n, nullptr});
        }
        begin_set(routed_, n * k, layer.experts.expert(0));
        group_by_expert(layer, n * k, experts);
        run_ffns(n, x);
        const float* routed = routed_.out.data();
        const float* common = every_row_.out.data();
        float* sums = row_sums_.get(n * c_.hidden);
        loop(n, (k + 2) * c_.hidden, [&](int64_t r, int) {
            float* sum = sums + r * c_.hidden;
            std::fill_n(sum, c_.hidden, 0.0f);
            for (int64_t i = r * k; i < (r + 1) * k; i++)  // ascending experts, whatever the company
                k_.add_scaled(c_.hidden, weights[i], routed + sorted_at_[static_cast<size_t>(i)] * c_.hidden,
                              sum);
            if (shared) k_.add(c_.hidden, common + r * c_.hidden, sum);
            k_.add(c_.hidden, sum, hidden + r * c_.hidden);
        });
    }

    void mtp_input(const Batch& batch, const Mtp& mtp, const float* state, float* out) override {
        const auto n = static_cast<int64_t>(batch.rows.size());
        const int64_t width = 2 * static_cast<int64_t>(c_.hidden);
        float* joined = joined_.get(n * width);
        loop(n, kSlow * width, [&](int64_t r, int) {
            float* to = joined + r * width;
            dequantize(mtp.embed.type, mtp.embed.row(batch.rows[static_cast<size_t>(r)].token), to,
                       c_.hidden);
            k_.rms_norm(c_.hidden, c_.rms_eps, to, mtp.enorm.data, to);
            k_.rms_norm(c_.hidden, c_.rms_eps, state + r * c_.hidden, mtp.hnorm.data, to + c_.hidden);
        });
        const std::array products = {Product{mtp.eh_proj, out}};
        multiply(n, joined, products, copy_results);
    }

    void head(int64_t n, const Matrix& head, const float* x, float* logits) override {
        const std::array products = {Product{head, logits}};
        multiply(n, x, products, copy_results);
    }

  private:
    // y (n, w.rows) of one of several products with the same activations.
    struct Product {
        Matrix w;
        float* y;
    };

    struct PerThread {
        Array<uint8_t> scratch;
        Array<float> tile, tile2, partial;
        Array<std::byte> attention;
    };

    PerThread& own(int thread) { return per_thread_[static_cast<size_t>(thread)]; }

    // How many multiply-adds a number costs where more is done to it than that.
    static constexpr int64_t kSlow = 8;

    // body(task, thread) for all tasks. `work`: about how many multiply-adds one is.
    template <typename Body>
    void loop(int64_t n, int64_t work, const Body& body) {
        loop_ahead(n, work, [&](int64_t task, int64_t, int thread) { body(task, thread); });
    }
    // body(task, next, thread), where `next` is what the thread takes after it, or -1.
    template <typename Body>
    void loop_ahead(int64_t n, int64_t work, const Body& body) {
        const auto stop = [this] { return should_abort(); };
        if (!pool_.run(n, work, body, stop)) fail(Status::aborted, "The step was stopped.");
    }

    void product(const Matrix& w, int64_t row, int count, const ProductRows& rows, float* tile,
                 PerThread& mine, const uint8_t* next) {
        k_.product(w, row, count, rows, tile, mine.scratch.get(k_.scratch_bytes), next);
    }

    void quantize(int64_t n, const float* x, int64_t cols, QuantizedArray& to) {
        const QuantizedRows& rows = to.get(n, cols);
        const int64_t groups = rows.stride / kGroup;
        loop(n, kSlow * cols, [&](int64_t r, int) { k_.quantize(x + r * cols, r, 0, groups, rows); });
    }

    // The weights' panels of all products are one list of tasks; `finish` takes `count` results of a row to
    // their place.
    template <size_t size, typename Finish>
    void multiply(int64_t n, const float* x, const std::array<Product, size>& products,
                  const Finish& finish) {
        std::array<int64_t, size + 1> first{};
        bool quantized = false;
        for (size_t i = 0; i < size; i++) {
            first[i + 1] = first[i] + panels(products[i].w.rows);
            quantized = quantized || takes_quantized(products[i].w.type);
        }
        if (quantized) quantize(n, x, products[0].w.cols, input_);
        const ProductRows rows{x, &input_.rows(), nullptr, n};
        const auto locate = [&](int64_t task) {
            size_t i = 0;
            while (task >= first[i + 1]) i++;
            return std::pair(i, (task - first[i]) * kPanel);
        };
        loop_ahead(first[size], kPanel * products[0].w.cols * n, [&](int64_t task, int64_t then, int thread) {
            const auto [i, row] = locate(task);
            const Matrix& w = products[i].w;
            const uint8_t* next = nullptr;
            if (then >= 0) {
                const auto [i_then, row_then] = locate(then);
                next = products[i_then].w.row(row_then);
            }
            const int count = static_cast<int>(std::min<int64_t>(kPanel, w.rows - row));
            float* tile = own(thread).tile.get(n * kPanel);
            product(w, row, count, rows, tile, own(thread), next);
            for (int64_t r = 0; r < n; r++)
                finish(tile + r * kPanel, products[i].y + r * w.rows + row, count);
        });
        for (const Product& product : products) observe(product.w, n, x);
    }

    std::byte* attention_scratch_of(const AttentionTile& tile, int thread) {
        return own(thread).attention.get(attention_scratch(tile.queries(), c_.head_dim));
    }

    // The partial results of all spans, then for each tile their combination, in the order in which a single
    // task would have combined them.
    void attention_by_span(int64_t work) {
        const auto& spans = plan_.spans();
        float* partials = partials_.get(plan_.partial_floats());
        const auto n = static_cast<int64_t>(spans.size());
        loop(n, work / n, [&](int64_t task, int thread) {
            const auto& [at, span] = spans[static_cast<size_t>(task)];
            const AttentionTile& tile = plan_.tiles()[at];
            float* partial =
                partials + plan_.first_partial(at) + span * partial_floats(tile.queries(), c_.head_dim);
            k_.attend_span(tile, span, partial, attention_scratch_of(tile, thread));
        });
        const auto n_tiles = static_cast<int64_t>(plan_.tiles().size());
        loop(n_tiles, plan_.partial_floats() / n_tiles, [&](int64_t task, int) {
            const AttentionTile& tile = plan_.tiles()[static_cast<size_t>(task)];
            const int64_t floats = partial_floats(tile.queries(), c_.head_dim);
            float* sum = partials + plan_.first_partial(static_cast<size_t>(task));
            for (int64_t span = 1; span < tile.spans(); span++) k_.add_span(tile, sum + span * floats, sum);
            k_.finish_attention(tile, sum);
        });
    }

    void begin_set(FfnSet& set, int64_t n, const Ffn& ffn) {
        set.n = n;
        set.width = ffn.gate.rows;
        set.middle.get(n * set.width);
        if (takes_quantized(ffn.down.type)) set.quantized.get(n, set.width);
        set.out.get(n * c_.hidden);
    }

    // Sorts the pairs (row, choice) by expert, stably, and adds a group for each expert that is used.
    void group_by_expert(const Layer& layer, int64_t n_pairs, const int32_t* experts) {
        std::vector<int64_t> begin(static_cast<size_t>(c_.n_experts) + 1, 0);
        for (int64_t i = 0; i < n_pairs; i++) begin[static_cast<size_t>(experts[i]) + 1]++;
        for (size_t e = 1; e < begin.size(); e++) begin[e] += begin[e - 1];
        sorted_rows_.resize(static_cast<size_t>(n_pairs));
        sorted_at_.resize(static_cast<size_t>(n_pairs));
        std::vector<int64_t> next(begin.begin(), begin.end() - 1);
        for (int64_t i = 0; i < n_pairs; i++) {
            const int64_t at = next[static_cast<size_t>(experts[i])]++;
            sorted_rows_[static_cast<size_t>(at)] = static_cast<int32_t>(i / c_.n_experts_used);
            sorted_at_[static_cast<size_t>(i)] = at;
        }
        for (int e = 0; e < c_.n_experts; e++) {
            const int64_t first = begin[static_cast<size_t>(e)],
                          count = begin[static_cast<size_t>(e) + 1] - first;
            if (count > 0)
                groups_.push_back(
                    {layer.experts.expert(e), &routed_, first, count, sorted_rows_.data() + first});
        }
    }

    // A task for each `step` rows of each group's matrix, of which `products` are made: body(group, row,
    // count, next, thread's own), with the rows of the matrix that are next.
    template <typename Body>
    void loop_groups(Matrix Ffn::* matrix, int64_t step, int64_t products, const Body& body) {
        first_task_.assign(1, 0);
        int64_t work = 0;
        for (const FfnGroup& group : groups_) {
            const Matrix& w = group.weights.*matrix;
            first_task_.push_back(first_task_.back() + (w.rows + step - 1) / step);
            work += products * w.rows * w.cols * group.count;
        }
        const auto locate = [&](int64_t task) {
            const auto at = std::upper_bound(first_task_.begin(), first_task_.end(), task) - 1;
            return std::pair<const FfnGroup&, int64_t>(groups_[static_cast<size_t>(at - first_task_.begin())],
                                                       (task - *at) * step);
        };
        const auto start = [&](int64_t task) {
            const auto& [group, row] = locate(task);
            return (group.weights.*matrix).row(row);
        };
        loop_ahead(first_task_.back(), work / first_task_.back(),
                   [&](int64_t task, int64_t then, int thread) {
                       const auto& [group, row] = locate(task);
                       body(group, row, std::min(step, (group.weights.*matrix).rows - row),
                            then < 0 ? nullptr : start(then), own(thread));
                   });
    }

    bool any_quantized(Matrix Ffn::* matrix) const {
        return std::any_of(groups_.begin(), groups_.end(),
                           [&](const FfnGroup& g) { return takes_quantized((g.weights.*matrix).type); });
    }

    // The FFNs of all groups_ at once, for rows of x (n, hidden); the results are in the groups' sets.
    void run_ffns(int64_t n, const float* x) {
        if (any_quantized(&Ffn::gate) || any_quantized(&Ffn::up)) quantize(n, x, c_.hidden, input_);
        // Of as many columns of the middle as are quantized together, so that it is done in the same loop.
        loop_groups(
            &Ffn::gate, kGroup, 2,
            [&](const FfnGroup& group, int64_t row, int64_t count, const uint8_t* next, PerThread& mine) {
                for (int64_t part = 0; part < count; part += kPanel) {
                    const bool last = part + kPanel >= count;
                    gate_and_up(group, x, row + part,
                                static_cast<int>(std::min<int64_t>(kPanel, count - part)),
                                last ? next : group.weights.gate.row(row + part + kPanel), mine);
                }
                if (takes_quantized(group.weights.down.type)) quantize_middle(group, row);
            });
        loop_groups(&Ffn::down, kPanel, 1,
                    [&](const FfnGroup& group, int64_t row, int64_t count, const uint8_t* next,
                        PerThread& mine) { down(group, row, static_cast<int>(count), next, mine); });
        for (const FfnGroup& group : groups_) {
            observe(group.weights.gate, group.count, x, group.inputs);
            observe(group.weights.down, group.count,
                    group.set->middle.data() + group.first * group.set->width);
        }
    }

    // `count` columns of the group's middle from `column` on. `next`: the gate's rows that follow.
    void gate_and_up(const FfnGroup& group, const float* x, int64_t column, int count, const uint8_t* next,
                     PerThread& mine) {
        const ProductRows rows{x, &input_.rows(), group.inputs, group.count};
        float* gate = mine.tile.get(group.count * kPanel);
        float* up = mine.tile2.get(group.count * kPanel);
        product(group.weights.gate, column, count, rows, gate, mine, group.weights.up.row(column));
        product(group.weights.up, column, count, rows, up, mine, next);
        float* middle = group.set->middle.data() + group.first * group.set->width + column;
        for (int64_t p = 0; p < group.count; p++)
            k_.swiglu(count, gate + p * kPanel, up + p * kPanel, middle + p * group.set->width);
    }

    // The quantization group that begins at `column`; after the last one, the padding too.
    void quantize_middle(const FfnGroup& group, int64_t column) const {
        const FfnSet& set = *group.set;
        const QuantizedRows& to = set.quantized.rows();
        const int64_t first = column / kGroup;
        const int64_t count = column + kGroup < set.width ? 1 : to.stride / kGroup - first;
        for (int64_t r = group.first; r < group.first + group.count; r++)
            k_.quantize(set.middle.data() + r * set.width + column, r, first, count, to);
    }

    // `count` columns of the group's outputs from `column` on.
    void down(const FfnGroup& group, int64_t column, int count, const uint8_t* next, PerThread& mine) {
        FfnSet& set = *group.set;
        const QuantizedRows quantized = set.quantized.rows().from(group.first);
        const ProductRows rows{set.middle.data() + group.first * set.width, &quantized, nullptr, group.count};
        float* tile = mine.tile.get(group.count * kPanel);
        product(group.weights.down, column, count, rows, tile, mine, next);
        float* out = set.out.data() + group.first * c_.hidden + column;
        for (int64_t p = 0; p < group.count; p++) copy_results(tile + p * kPanel, out + p * c_.hidden, count);
    }

    // Of all rows: both products with every position so far.
    int64_t attention_work(const Batch& batch) const {
        int64_t positions = 0;
        for (const Row& row : batch.rows) positions += row.position + 1;
        return 2 * positions * c_.q_width();
    }

    void finish_heads(const Floats& weight, int heads, const Batch& batch, int64_t r, float* row) const {
        for (int h = 0; h < heads; h++) {
            float* head = row + static_cast<int64_t>(h) * c_.head_dim;
            k_.rms_norm(c_.head_dim, c_.rms_eps, head, weight.data, head);
            k_.rotate(c_.head_dim / 2, batch.rope->cos(r), batch.rope->sin(r), head);
        }
    }

    void write_cache(const Batch& batch, int64_t r, int slot, const float* k, const float* v) const {
        const Row& row = batch.rows[static_cast<size_t>(r)];
        const KvCache& cache = *batch.caches[static_cast<size_t>(row.sequence)];
        const KvLayout& layout = cache.layout();
        std::byte* page = cache.pages()[static_cast<size_t>(row.position / kPageSize)];
        const int within = row.position % kPageSize;
        for (int h = 0; h < c_.n_kv_heads; h++) {
            const int64_t at = static_cast<int64_t>(h) * c_.head_dim;
            k_.store_key(layout, within, k + at, page + layout.key_offset(slot, h));
            k_.store_value(layout, within, v + at, page + layout.value_offset(slot, h));
        }
    }

    const Config c_;
    const Kernels& k_;
    ThreadPool pool_;
    std::vector<PerThread> per_thread_;
    QuantizedArray input_;
    Array<float> k_rows_, v_rows_, router_logits_, joined_, row_sums_, partials_;
    AttentionPlan plan_;
    FfnSet routed_, every_row_;
    std::vector<FfnGroup> groups_;
    std::vector<int32_t> sorted_rows_;  // row of each (row, choice) pair, sorted by expert
    std::vector<int64_t> sorted_at_;    // where in that order a pair went
    std::vector<int64_t> first_task_;   // of each group
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(const Config& config, int threads) {
    return std::make_unique<cpu::CpuBackend>(config, threads > 0 ? threads : cpu::usable_cores());
}

}  // namespace hy3
