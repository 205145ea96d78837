// The key/value cache of one sequence, in pages of a fixed number of positions. Pages are shared between
// forked sequences and copied when one of them writes, so that sequences fork, grow and shrink without
// copying the rest.
//
// A page holds all layers: for each layer the keys of its heads, then the values. A row is written once,
// quantized if the type says so, and never changes while its position stands.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace hy3 {

class Backend;

// q8: int8 with a float32 scale per head and row. q4: 4 bits with a float16 scale per 32 columns of a head.
enum class KvType { f32, f16, q8, q4 };

// Positions in a page.
inline constexpr int kPageSize = 64;
// Pages that so many positions of a sequence take.
constexpr int64_t whole_pages(int64_t positions) {
    return (positions + kPageSize - 1) / kPageSize;
}
// Pages, and positions, of a span: attention reduces over one span of absolute positions at a time and
// combines the spans in order (see docs/architecture.md), so that changing it changes last bits.
inline constexpr int kSpanPages = 8;
inline constexpr int kSpan = kSpanPages * kPageSize;

// Columns of a head that share a scale in q4.
inline constexpr int kKvGroup = 32;
// q8: a value is code * scale; keys are kept as code + 128, unsigned. q4: a value is (code - 7.5) * scale.
inline constexpr int kKeyOffsetQ8 = 128;
inline constexpr float kMiddleQ4 = 7.5f;

// Inlined wherever they are used, since the kernels of several instruction sets use them: a copy of its own,
// compiled for one of these, could be linked into code that runs without it.
#define HY3_KV_INLINE [[gnu::always_inline]]

// The one place that knows where things are in a page. The keys and the values of a head take the same number
// of bytes: the elements, then the scales, which lie position by position.
//
// Elements are ordered as attention reads them, in lines of 64 bytes where they are quantized: keys so that a
// line has 4 columns of 16 positions, values so that it has 4 positions of 16 columns; in q4, twice the
// columns, the second half in the high nibbles. (p position in the page, d column, c = head_dim)
//
//         keys                               values
// floats  [d][p 64]                          [p 64][d]
// q8      [p/16 4][d/4 c/4][p 16][d 4]       [d/16 c/16][p/4 16][d 16][p 4]
// q4      [p/16 4][d/8 c/8][p 16][d 4]       [d/32 c/32][p/4 16][d 16][p 4]
struct KvLayout {
    KvType type = KvType::f16;
    int n_layers = 0;  // the MTP layer included when the session keeps it
    int n_kv_heads = 0;
    int head_dim = 0;

    HY3_KV_INLINE size_t element_bits() const {
        switch (type) {
            case KvType::f32:
                return 32;
            case KvType::f16:
                return 16;
            case KvType::q8:
                return 8;
            case KvType::q4:
                return 4;
        }
        return 0;
    }
    HY3_KV_INLINE size_t elements_bytes() const {
        return static_cast<size_t>(kPageSize) * columns() * element_bits() / 8;
    }
    HY3_KV_INLINE size_t scales_bytes() const {
        switch (type) {
            case KvType::q8:
                return kPageSize * sizeof(float);
            case KvType::q4:
                return kPageSize * columns() / kKvGroup * sizeof(uint16_t);
            default:
                return 0;
        }
    }
    // Bytes of one layer's keys (or values) of one head in a page.
    HY3_KV_INLINE size_t head_bytes() const { return elements_bytes() + scales_bytes(); }
    HY3_KV_INLINE size_t page_bytes() const {
        return 2 * static_cast<size_t>(n_layers) * n_kv_heads * head_bytes();
    }
    HY3_KV_INLINE size_t key_offset(int layer, int head) const {
        return (2 * static_cast<size_t>(layer) * n_kv_heads + head) * head_bytes();
    }
    HY3_KV_INLINE size_t value_offset(int layer, int head) const {
        return ((2 * static_cast<size_t>(layer) + 1) * n_kv_heads + head) * head_bytes();
    }

    // Within a head: the byte at which the element (p, d) begins.
    HY3_KV_INLINE size_t key_at(size_t p, size_t d) const {
        switch (type) {
            case KvType::q8:
                return (p / 16 * (columns() / 4) + d / 4) * 64 + p % 16 * 4 + d % 4;
            case KvType::q4:
                return (p / 16 * (columns() / 8) + d / 8) * 64 + p % 16 * 4 + d % 4;
            default:
                return (d * kPageSize + p) * element_bits() / 8;
        }
    }
    HY3_KV_INLINE size_t value_at(size_t p, size_t d) const {
        switch (type) {
            case KvType::q8:
                return (d / 16 * 16 + p / 4) * 64 + d % 16 * 4 + p % 4;
            case KvType::q4:
                return (d / 32 * 16 + p / 4) * 64 + d % 16 * 4 + p % 4;
            default:
                return (p * columns() + d) * element_bits() / 8;
        }
    }
    // q4: columns from the one in a byte's low nibble to the one in its high nibble.
    static constexpr int key_nibbles = 4;
    static constexpr int value_nibbles = 16;
    // Where the scale of (p, d) is; the same for keys and values.
    HY3_KV_INLINE size_t scale_at(size_t p, size_t d) const {
        return elements_bytes() +
               (type == KvType::q8 ? p * sizeof(float) : (d / kKvGroup * kPageSize + p) * sizeof(uint16_t));
    }

    // Zeroes a layer's positions from `first` on, in a page in host memory.
    void clear_from(int64_t first, int layer, std::byte* page) const;

  private:
    HY3_KV_INLINE size_t columns() const { return static_cast<size_t>(head_dim); }
};

#undef HY3_KV_INLINE

// How many pages there are of some caches together, those they share counted once.
struct KvUse {
    std::atomic<int64_t> pages = 0;
};

// One page in the backend's memory.
class KvPage {
  public:
    // use may be null.
    KvPage(Backend& backend, size_t bytes, std::shared_ptr<KvUse> use);
    ~KvPage();
    KvPage(const KvPage&) = delete;
    KvPage& operator=(const KvPage&) = delete;
    std::byte* data() const { return data_; }

  private:
    Backend& backend_;
    std::byte* data_;
    std::shared_ptr<KvUse> use_;
};

class KvCache {
  public:
    KvCache(Backend& backend, const KvLayout& layout, std::shared_ptr<KvUse> use = nullptr)
        : backend_(backend), layout_(layout), use_(std::move(use)) {}
    // A fork: the pages are shared until one side writes to them.
    KvCache(const KvCache&) = default;
    KvCache& operator=(const KvCache&) = delete;

    // Makes positions [first, first + count) writable: adds the pages that are missing and copies those that
    // are shared. Strong guarantee: on failure the cache is as before.
    void prepare(int64_t first, int64_t count);
    // Drops the pages that hold no position below `size`.
    void shrink(int64_t size);
    // Exchanges the content of two caches of one layout and backend.
    void swap(KvCache& other) noexcept {
        pages_.swap(other.pages_);
        addresses_.swap(other.addresses_);
    }

    const KvLayout& layout() const { return layout_; }
    // Of its pages, those shared with forks included.
    size_t bytes() const { return pages_.size() * layout_.page_bytes(); }
    // Base address of each page, in the order of positions.
    const std::vector<std::byte*>& pages() const { return addresses_; }

  private:
    Backend& backend_;
    KvLayout layout_;
    std::shared_ptr<KvUse> use_;
    std::vector<std::shared_ptr<KvPage>> pages_;
    std::vector<std::byte*> addresses_;
};

}  // namespace hy3
