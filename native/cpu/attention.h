// Attention of a step as tasks for the pool: rows cut into tiles, and, where tiles are few and their contexts
// long, tiles cut into spans.
#pragma once

#include <cstdint>
#include <vector>

#include "core/backend.h"
#include "cpu/kernels.h"

namespace hy3::cpu {

// Queries of a tile, where one row has fewer: enough to make reading keys and values cheap, few enough that
// their scores stay in the second level cache.
inline constexpr int kTileQueries = 32;

// One pass of attention over a batch, in one layer.
class AttentionPlan {
  public:
    struct SpanTask {
        size_t tile;
        int64_t span;
    };

    // q and out are (n, q_width).
    void make(const Batch& batch, int slot, const Config& config, const float* q, float* out);

    // The longest first: a late long one would leave the other threads waiting.
    const std::vector<AttentionTile>& tiles() const { return tiles_; }

    // Whether so few tiles are better shared out span by span.
    bool by_span(int threads) const;
    // All spans of all tiles. Their partial results take partial_floats(), a tile's one after the other from
    // first_partial(tile) on.
    const std::vector<SpanTask>& spans();
    int64_t first_partial(size_t tile) const { return first_partial_[tile]; }
    int64_t partial_floats() const { return first_partial_.back(); }

  private:
    std::vector<AttentionTile> tiles_;
    std::vector<SpanTask> spans_;
    std::vector<int64_t> first_partial_;
};

}  // namespace hy3::cpu
