// The keys or the values of one head in one layer of a sequence's cache as numbers, whatever type they are
// kept in. Plain loops, one element at a time, that say what each type means.
#pragma once

#include "core/kv_cache.h"

namespace hy3 {

enum class KvPart { keys, values };

class CacheView {
  public:
    CacheView(const KvCache& cache, int slot, int head, KvPart part)
        : cache_(cache),
          layout_(cache.layout()),
          keys_(part == KvPart::keys),
          offset_(keys_ ? layout_.key_offset(slot, head) : layout_.value_offset(slot, head)) {}

    // x: (head_dim)
    void write(int64_t position, const float* x) const;
    void read(int64_t position, float* x) const;

  private:
    std::byte* head(int64_t position) const {
        return cache_.pages()[static_cast<size_t>(position / kPageSize)] + offset_;
    }
    // The byte of element d at position p of a page, and whether (q4) it is in the high nibble.
    size_t at(size_t p, size_t d) const { return keys_ ? layout_.key_at(p, d) : layout_.value_at(p, d); }
    bool is_high(size_t d) const {
        return d / (keys_ ? KvLayout::key_nibbles : KvLayout::value_nibbles) % 2 == 1;
    }
    void write_q8(std::byte* head, size_t p, const float* x) const;
    void write_q4(std::byte* head, size_t p, size_t first, const float* x) const;

    const KvCache& cache_;
    const KvLayout& layout_;
    bool keys_;
    size_t offset_;
};

}  // namespace hy3
