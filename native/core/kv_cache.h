// The key/value cache of one sequence, in pages of a fixed number of positions. Pages are shared between
// forked sequences and copied when one of them writes, so that sequences fork, grow and shrink without
// copying the rest.
//
// A page holds all layers: for each layer the keys, then the values, each as [kv_head][position][head_dim].
// A row is written once and never changes while its position stands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hy3 {

class Backend;

enum class KvType { f32, f16 };

// Positions in a page. Attention reduces over one page at a time, in order, so that this is also the span
// of its fixed reduction order (see docs/architecture.md): changing it changes last bits.
inline constexpr int kPageSize = 64;

struct KvLayout {
    KvType type = KvType::f16;
    int n_layers = 0;  // the MTP layer included when the session keeps it
    int n_kv_heads = 0;
    int head_dim = 0;

    size_t element_bytes() const { return type == KvType::f32 ? 4 : 2; }
    // Bytes of one layer's keys (or values) of one head in a page.
    size_t head_bytes() const { return static_cast<size_t>(kPageSize) * head_dim * element_bytes(); }
    size_t page_bytes() const { return 2 * static_cast<size_t>(n_layers) * n_kv_heads * head_bytes(); }
    size_t key_offset(int layer, int head) const {
        return (2 * static_cast<size_t>(layer) * n_kv_heads + head) * head_bytes();
    }
    size_t value_offset(int layer, int head) const {
        return ((2 * static_cast<size_t>(layer) + 1) * n_kv_heads + head) * head_bytes();
    }
};

// One page in the backend's memory.
class KvPage {
  public:
    KvPage(Backend& backend, size_t bytes);
    ~KvPage();
    KvPage(const KvPage&) = delete;
    KvPage& operator=(const KvPage&) = delete;
    std::byte* data() const { return data_; }

  private:
    Backend& backend_;
    std::byte* data_;
};

class KvCache {
  public:
    KvCache(Backend& backend, const KvLayout& layout) : backend_(backend), layout_(layout) {}
    // A fork: the pages are shared until one side writes to them.
    KvCache(const KvCache&) = default;
    KvCache& operator=(const KvCache&) = delete;

    // Makes positions [first, first + count) writable: adds the pages that are missing and copies those that
    // are shared. Strong guarantee: on failure the cache is as before.
    void prepare(int64_t first, int64_t count);
    // Drops the pages that hold no position below `size`.
    void shrink(int64_t size);

    const KvLayout& layout() const { return layout_; }
    // Base address of each page, in the order of positions.
    const std::vector<std::byte*>& pages() const { return addresses_; }

  private:
    Backend& backend_;
    KvLayout layout_;
    std::vector<std::shared_ptr<KvPage>> pages_;
    std::vector<std::byte*> addresses_;
};

}  // namespace hy3
