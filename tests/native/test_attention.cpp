// The key/value cache and attention kernels of every instruction set: what they store against the reference
// backend's rows, what they compute against sums in double, and all of them against each other to the bit.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "main.h"
#include "noise.h"
#include "reference/cache_view.h"
#include "reference/reference_backend.h"

using namespace hy3;
using namespace hy3::cpu;
using hy3::test::noise;
using hy3::test::same_bits;

namespace {

constexpr int kLayers = 2, kKvHeads = 2, kSlot = 1, kHead = 1;
constexpr KvType kTypes[] = {KvType::f32, KvType::f16, KvType::q8, KvType::q4};

struct Cache {
    std::unique_ptr<Backend> backend = make_reference_backend({});
    KvLayout layout;
    KvCache cache;

    // Pages full of bytes that are no numbers: what was not stored must not be read.
    Cache(KvType type, int head_dim, int64_t positions)
        : layout{type, kLayers, kKvHeads, head_dim}, cache(*backend, layout) {
        cache.prepare(0, positions);
        for (std::byte* page : cache.pages()) std::memset(page, 0xff, layout.page_bytes());
    }
    CacheView view(KvPart part) const { return {cache, kSlot, kHead, part}; }
    std::byte* keys(int64_t position) const {
        return cache.pages()[static_cast<size_t>(position / kPageSize)] + layout.key_offset(kSlot, kHead);
    }
    std::byte* values(int64_t position) const {
        return cache.pages()[static_cast<size_t>(position / kPageSize)] + layout.value_offset(kSlot, kHead);
    }
};

struct Rows {
    int64_t n;
    int head_dim;
    std::vector<float> keys, values;

    Rows(int64_t count, int columns)
        : n(count), head_dim(columns), keys(noise(n * columns, 7)), values(noise(n * columns, 8)) {}
    const float* key(int64_t p) const { return keys.data() + p * head_dim; }
    const float* value(int64_t p) const { return values.data() + p * head_dim; }

    void store(const Kernels& kernels, const Cache& cache, int64_t count) const {
        for (int64_t p = 0; p < count; p++) {
            const int within = static_cast<int>(p % kPageSize);
            kernels.store_key(cache.layout, within, key(p), cache.keys(p));
            kernels.store_value(cache.layout, within, value(p), cache.values(p));
        }
    }
};

// Attention of `rows` rows from `position` on, (rows, group, head_dim).
std::vector<float> attend(const Kernels& kernels, const Cache& cache, const std::vector<float>& q, int group,
                          int rows, int64_t position) {
    const int head_dim = cache.layout.head_dim;
    std::vector<float> out(q.size());
    const AttentionTile tile{&cache.layout, cache.cache.pages().data(),
                             kSlot,         kHead,
                             group,         rows,
                             position,      q.data(),
                             out.data(),    static_cast<int64_t>(group) * head_dim};
    std::vector<float> sum(static_cast<size_t>(partial_floats(tile.queries(), head_dim))), next(sum.size());
    Array<std::byte> scratch;
    for (int64_t span = 0; span < tile.spans(); span++) {
        kernels.attend_span(tile, span, span == 0 ? sum.data() : next.data(),
                            scratch.get(attention_scratch(tile.queries(), head_dim)));
        if (span > 0) kernels.add_span(tile, next.data(), sum.data());
    }
    kernels.finish_attention(tile, sum.data());
    return out;
}

// The same for one query, in double, of the rows as the cache has them.
std::vector<double> exact(const Cache& cache, const float* q, int64_t position) {
    const auto n = static_cast<size_t>(cache.layout.head_dim);
    std::vector<float> row(n);
    std::vector<double> weights, out(n);
    double total = 0.0;
    for (int64_t p = 0; p <= position; p++) {
        cache.view(KvPart::keys).read(p, row.data());
        double dot = 0.0;
        for (size_t d = 0; d < n; d++) dot += static_cast<double>(row[d]) * static_cast<double>(q[d]);
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(n))));
        total += weights.back();
    }
    for (int64_t p = 0; p <= position; p++) {
        cache.view(KvPart::values).read(p, row.data());
        for (size_t d = 0; d < n; d++)
            out[d] += weights[static_cast<size_t>(p)] / total * static_cast<double>(row[d]);
    }
    return out;
}

}  // namespace

TEST(isa_stored_rows_are_those_of_the_reference) {
    for (const KvType type : kTypes)
        for (const int head_dim : {64, 80, 96, 128, 256}) {
            if (type == KvType::q4 && head_dim % kKvGroup != 0) continue;
            Rows rows(70, head_dim);
            for (float& x : rows.keys) x *= 30.0f;
            std::fill_n(rows.keys.begin(), head_dim, 0.0f);
            std::fill_n(rows.values.begin() + head_dim, head_dim, 1e-12f);
            const Cache plain(type, head_dim, rows.n);
            for (int64_t p = 0; p < rows.n; p++) {
                plain.view(KvPart::keys).write(p, rows.key(p));
                plain.view(KvPart::values).write(p, rows.value(p));
            }
            for (const Kernels* kernels : usable_kernels()) {
                const Cache cache(type, head_dim, rows.n);
                rows.store(*kernels, cache, rows.n);
                for (size_t i = 0; i < cache.cache.pages().size(); i++)
                    CHECK(std::memcmp(cache.cache.pages()[i], plain.cache.pages()[i],
                                      cache.layout.page_bytes()) == 0);
            }
            // Read back: half a step of the row's, or the group's, largest.
            const double step = type == KvType::f32   ? 0.0
                                : type == KvType::f16 ? 0x1p-11
                                : type == KvType::q8  ? 0.5 / 127 + 1e-6
                                                      : 0.5 / 7.5 + 1e-3;
            std::vector<float> row(static_cast<size_t>(head_dim));
            for (int64_t p = 0; p < rows.n; p++) {
                plain.view(KvPart::keys).read(p, row.data());
                float largest = 0.0f;
                for (int d = 0; d < head_dim; d++) largest = std::max(largest, std::abs(rows.key(p)[d]));
                for (int d = 0; d < head_dim; d++)
                    CHECK(std::abs(static_cast<double>(row[static_cast<size_t>(d)] - rows.key(p)[d])) <=
                          step * static_cast<double>(largest));
            }
        }
}

TEST(isa_attention_agrees_to_the_bit_and_with_sums_in_double) {
    constexpr int64_t positions = 2 * kSpan + 90;
    for (const KvType type : kTypes)
        for (const int head_dim : {64, 80, 96, 128, 256}) {
            if (type == KvType::q4 && head_dim % kKvGroup != 0) continue;
            const Rows stored(positions, head_dim);
            for (const auto& [group, rows, position] : {std::tuple{8, 4, 2 * kSpan + 70},
                                                        {3, 5, kSpan - 9},
                                                        {1, 1, 0},
                                                        {5, 7, 17},
                                                        {2, 1, kSpan},
                                                        {1, 16, kSpan + kPageSize}}) {
                const int64_t width = static_cast<int64_t>(group) * head_dim;
                const std::vector<float> q = noise(rows * width, 9);
                std::vector<float> first;
                for (const Kernels* kernels : usable_kernels()) {
                    const Cache cache(type, head_dim, positions);
                    stored.store(*kernels, cache, position + rows);
                    const std::vector<float> tile = attend(*kernels, cache, q, group, rows, position);
                    if (first.empty()) first = tile;
                    CHECK(same_bits(tile, first));
                    for (int r = 0; r < rows; r++) {  // a row alone
                        const std::vector<float> one(q.begin() + r * width, q.begin() + (r + 1) * width);
                        CHECK(same_bits(attend(*kernels, cache, one, group, 1, position + r),
                                        {tile.begin() + r * width, tile.begin() + (r + 1) * width}));
                    }
                    if (kernels != usable_kernels().front()) continue;
                    // Quantized caches also round the queries to int8, by groups.
                    const double allowed = type == KvType::q8 || type == KvType::q4 ? 0.02 : 2e-6;
                    for (int i = 0; i < rows * group; i++) {
                        const std::vector<double> want =
                            exact(cache, q.data() + static_cast<int64_t>(i) * head_dim, position + i / group);
                        for (int d = 0; d < head_dim; d++)
                            CHECK(std::abs(want[static_cast<size_t>(d)] -
                                           static_cast<double>(tile[static_cast<size_t>(i * head_dim + d)])) <
                                  allowed);
                    }
                }
            }
        }
}

TEST(isa_attention_carries_on_what_is_not_finite) {
    constexpr int head_dim = 64;
    for (const KvType type : kTypes)
        for (const Kernels* kernels : usable_kernels())
            for (const bool in_key : {true, false}) {
                Rows rows(40, head_dim);
                (in_key ? rows.keys : rows.values)[20 * head_dim + 3] =
                    std::numeric_limits<float>::quiet_NaN();
                const Cache cache(type, head_dim, rows.n);
                rows.store(*kernels, cache, rows.n);
                const std::vector<float> q = noise(head_dim, 10);
                CHECK(std::isnan(attend(*kernels, cache, q, 1, 1, 30)[3]));
                CHECK(std::isfinite(attend(*kernels, cache, q, 1, 1, 19)[3]));
            }
}
