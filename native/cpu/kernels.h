// The CPU kernels, as a table of functions. The algorithms are written once (cpu/generic) over a small
// vocabulary of vectors (cpu/simd_*.h) and compiled once per instruction set (cpu/isa_*.cpp); which table is
// used is chosen at run time.
//
// Every table computes the same bits. Integer sums are exact, and float operations are the same ones in the
// same order everywhere: fused multiply-adds where the code says so and nowhere else, 16 lanes by column, one
// fixed tree over the lanes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/kv_cache.h"
#include "core/weights.h"

namespace hy3::cpu {

// Weight rows that a product computes at once.
inline constexpr int kPanel = 16;
// Columns of one activation scale.
inline constexpr int kGroup = 32;

// Activations prepared for a product with quantized weights: int8 with a float scale per 32 columns, and the
// sums that offsets and minima of the weights need. All row-major; `stride` is cols rounded up to 64, zero
// filled.
struct QuantizedRows {
    int64_t cols = 0;
    int64_t stride = 0;
    int8_t* q = nullptr;       // (n, stride)
    float* scale = nullptr;    // (n, stride / 32)
    int32_t* sum32 = nullptr;  // (n, stride / 32): of q
    int32_t* sum16 = nullptr;  // (n, stride / 16)
    float* fsum32 = nullptr;   // (n, stride / 32): scale * sum
    float* fsum16 = nullptr;   // (n, stride / 16)

    // The rows from `row` on.
    QuantizedRows from(int64_t row) const {
        const int64_t at = row * (stride / 32);
        return {cols,       stride,         q + row * stride, scale + at,
                sum32 + at, sum16 + 2 * at, fsum32 + at,      fsum16 + 2 * at};
    }
};

// The right-hand side of a product: row i is row index[i] of the data (or row i where index is null).
struct ProductRows {
    const float* f = nullptr;          // (n, cols), for float weights
    const QuantizedRows* q = nullptr;  // for quantized weights
    const int32_t* index = nullptr;
    int64_t n = 0;

    [[gnu::always_inline]] int64_t row(int64_t i) const { return index != nullptr ? index[i] : i; }
};

// What one call of attention computes together, so that keys and values are read once for all: the query
// heads that share a key/value head, of rows at consecutive positions in one page. A tile's queries are
// counted row by row: query i is head i % group of row i / group.
struct AttentionTile {
    const KvLayout* layout = nullptr;
    std::byte* const* pages = nullptr;
    int slot = 0;  // layer in the cache
    int kv_head = 0;
    int group = 0;             // query heads that share the key/value head
    int rows = 0;              // row r attends to positions 0..position + r
    int64_t position = 0;      // of the first row
    const float* q = nullptr;  // (rows, group, head_dim), row_stride floats from row to row
    float* out = nullptr;      // the same
    int64_t row_stride = 0;

    [[gnu::always_inline]] int queries() const { return rows * group; }
    [[gnu::always_inline]] int64_t spans() const { return position / kSpan + 1; }
};

// The result of a tile over some spans: (queries, head_dim) sums of weighted values, then the queries'
// largest scores, then the totals of their weights.
inline int64_t partial_floats(int queries, int head_dim) {
    return static_cast<int64_t>(queries) * (head_dim + 2);
}

// Bytes of attend_span()'s scratch: the queries and the scores of a span; then, for quantized caches, queries
// and weights in int8 with their scales and sums, and a row of products.
inline int64_t attention_scratch(int queries, int head_dim) {
    const int64_t groups = (head_dim + kGroup - 1) / kGroup;
    const int64_t a_query = 4 * (head_dim + kSpan) + groups * (kGroup + 3 * 4) + 2 * kSpan + 3 * 4;
    return queries * a_query + 4 * kSpan;
}

struct Kernels {
    const char* name;
    bool (*usable)();
    int64_t scratch_bytes;  // of a thread's memory for products

    // tile (rows.n, kPanel) = rows [first, first + count) of w, times the activations. Columns from count on
    // are unspecified. `next`: the weights that the thread will multiply next, which the memory is asked for
    // meanwhile; null where it is not known.
    void (*product)(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    void* scratch, const uint8_t* next);
    // Groups [first, first + count) of row `r` of `out`, from their columns x. Groups beyond the columns
    // become zero.
    void (*quantize)(const float* x, int64_t r, int64_t first, int64_t count, const QuantizedRows& out);
    // y = x * rsqrt(mean(x^2) + eps) * weight
    void (*rms_norm)(int64_t n, float eps, const float* x, const float* weight, float* y);
    // rotates dimension d against d + half
    void (*rotate)(int half, const float* cos, const float* sin, float* head);
    // out = silu(gate) * up
    void (*swiglu)(int64_t n, const float* gate, const float* up, float* out);
    // y += x
    void (*add)(int64_t n, const float* x, float* y);
    // y += weight * x
    void (*add_scaled)(int64_t n, float weight, const float* x, float* y);
    // A row of a head into its keys (or values) in a page, at position p of the page.
    void (*store_key)(const KvLayout& layout, int p, const float* x, std::byte* keys);
    void (*store_value)(const KvLayout& layout, int p, const float* x, std::byte* values);
    // The partial result of a tile over one span, with all rows reading the keys and values once.
    void (*attend_span)(const AttentionTile& tile, int64_t span, float* partial, std::byte* scratch);
    // Adds the partial result of the next span to that of the spans before it.
    void (*add_span)(const AttentionTile& tile, const float* next, float* partial);
    // tile.out from the partial result of all spans.
    void (*finish_attention)(const AttentionTile& tile, const float* partial);

    // What the core can do at most (cpu/probe.h): reads n bytes, a multiple of 512;
    int32_t (*read_memory)(const uint8_t* from, int64_t n);
    // multiplies int8 and returns the number of operations. *sum: an operand, then a result.
    int64_t (*multiply_int8)(int64_t rounds, int32_t* sum);
};

// Whether product() takes int8 activations for weights of this type.
bool takes_quantized(Type type);

// Tables that this machine can run, the preferred one first.
const std::vector<const Kernels*>& usable_kernels();

// The preferred one, or the one that the environment variable HY3_ISA names. Error(invalid_argument) if it
// names none that can run here.
const Kernels& select_kernels();

}  // namespace hy3::cpu
