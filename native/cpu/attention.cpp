#include "cpu/attention.h"

#include <algorithm>

namespace hy3::cpu {

void AttentionPlan::make(const Batch& batch, int slot, const Config& config, const float* q, float* out) {
    const int group = config.n_heads / config.n_kv_heads;
    const size_t most_rows = static_cast<size_t>(std::max(1, kTileQueries / group));
    const int64_t width = config.q_width();
    const auto& rows = batch.rows;
    tiles_.clear();
    for (size_t first = 0, end; first < rows.size(); first = end) {
        const Row& row = rows[first];
        const auto belongs = [&](size_t i) {
            return rows[i].sequence == row.sequence &&
                   rows[i].position == row.position + static_cast<int32_t>(i - first) &&
                   rows[i].position / kPageSize == row.position / kPageSize;
        };
        end = first + 1;
        while (end < rows.size() && end - first < most_rows && belongs(end)) end++;
        const KvCache& cache = *batch.caches[static_cast<size_t>(row.sequence)];
        for (int head = 0; head < config.n_kv_heads; head++) {
            const int64_t at =
                static_cast<int64_t>(first) * width + static_cast<int64_t>(head) * group * config.head_dim;
            tiles_.push_back({&cache.layout(), cache.pages().data(), slot, head, group,
                              static_cast<int>(end - first), row.position, q + at, out + at, width});
        }
    }
    std::stable_sort(tiles_.begin(), tiles_.end(),
                     [](const AttentionTile& a, const AttentionTile& b) { return a.position > b.position; });
}

bool AttentionPlan::by_span(int threads) const {
    return threads > 1 && !tiles_.empty() && tiles_.front().spans() > 1 &&
           tiles_.size() < 4 * static_cast<size_t>(threads);
}

const std::vector<AttentionPlan::SpanTask>& AttentionPlan::spans() {
    spans_.clear();
    first_partial_.assign(1, 0);
    for (size_t i = 0; i < tiles_.size(); i++) {
        const AttentionTile& tile = tiles_[i];
        for (int64_t span = 0; span < tile.spans(); span++) spans_.push_back({i, span});
        first_partial_.push_back(first_partial_.back() +
                                 tile.spans() * cpu::partial_floats(tile.queries(), tile.layout->head_dim));
    }
    return spans_;
}

}  // namespace hy3::cpu
