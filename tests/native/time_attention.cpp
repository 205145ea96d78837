// How fast attention reads the key/value cache: hy3_time_attention [DEPTH]
//
// One row of Hy3's shape (64 query heads, 8 key/value heads of 128) on one thread, for each cache type and
// instruction set; then rows of a prompt at the same depth.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "noise.h"
#include "reference/reference_backend.h"

using namespace hy3;
using namespace hy3::cpu;

namespace {

constexpr int kHeads = 64, kKvHeads = 8, kHeadDim = 128, kGroupSize = kHeads / kKvHeads, kPromptRows = 4;

struct Run {
    const Kernels& kernels;
    const KvCache& cache;
    std::vector<float> q, out;
    Array<float> partial{};
    Array<std::byte> scratch{};

    // Seconds of all heads and spans: the sum of the best of 15 for each, so that what else the machine does
    // in between counts little.
    double seconds(int rows, int64_t position) {
        std::vector<double> best;
        for (int i = 0; i < 15; i++) {
            size_t at = 0;
            for (int head = 0; head < kKvHeads; head++) {
                const int64_t first = static_cast<int64_t>(head) * kGroupSize * kHeadDim;
                const AttentionTile tile{&cache.layout(),
                                         cache.pages().data(),
                                         0,
                                         head,
                                         kGroupSize,
                                         rows,
                                         position,
                                         q.data() + first,
                                         out.data() + first,
                                         kHeads * kHeadDim};
                const int64_t floats = partial_floats(tile.queries(), kHeadDim);
                float* sum = partial.get(2 * floats);
                std::byte* work = scratch.get(attention_scratch(tile.queries(), kHeadDim));
                for (int64_t span = 0; span < tile.spans(); span++, at++) {
                    const auto begin = std::chrono::steady_clock::now();
                    kernels.attend_span(tile, span, span == 0 ? sum : sum + floats, work);
                    if (span > 0) kernels.add_span(tile, sum + floats, sum);
                    if (span == tile.spans() - 1) kernels.finish_attention(tile, sum);
                    const double took =
                        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                    if (at == best.size()) best.push_back(took);
                    best[at] = std::min(best[at], took);
                }
            }
        }
        return std::accumulate(best.begin(), best.end(), 0.0);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const int64_t depth = argc > 1 ? std::atoll(argv[1]) : 16384;
    if (depth < 1 || depth > 1 << 20) {
        std::fprintf(stderr, "DEPTH is a number of positions from 1 to 1048576.\n");
        return 2;
    }
    std::printf(
        "depth %lld, one thread\ncache  isa          MB      decode ms  GB/s   prompt us/row  GMAC/s\n",
        static_cast<long long>(depth));
    const std::unique_ptr<Backend> backend = make_reference_backend({});
    const struct {
        KvType type;
        const char* name;
    } types[] = {{KvType::f32, "f32"}, {KvType::f16, "f16"}, {KvType::q8, "q8"}, {KvType::q4, "q4"}};
    for (const auto& [type, name] : types) {
        KvCache cache(*backend, {type, 1, kKvHeads, kHeadDim});
        cache.prepare(0, depth + kPageSize);
        const std::vector<float> row = test::noise(kHeadDim, 1);
        for (int64_t p = 0; p < depth + kPageSize; p++)
            for (int head = 0; head < kKvHeads; head++) {
                std::byte* page = cache.pages()[static_cast<size_t>(p / kPageSize)];
                const Kernels& k = *usable_kernels().front();
                k.store_key(cache.layout(), static_cast<int>(p % kPageSize), row.data(),
                            page + cache.layout().key_offset(0, head));
                k.store_value(cache.layout(), static_cast<int>(p % kPageSize), row.data(),
                              page + cache.layout().value_offset(0, head));
            }
        const double bytes =
            static_cast<double>(cache.layout().page_bytes()) / kPageSize * static_cast<double>(depth);
        for (const Kernels* kernels : usable_kernels()) {
            if (kernels == usable_kernels().back()) continue;  // plain C++, for machines without vectors
            Run run{*kernels, cache, test::noise(kPromptRows * kHeads * kHeadDim, 2),
                    std::vector<float>(kPromptRows * kHeads * kHeadDim)};
            const double decode = run.seconds(1, depth - 1);
            const double prompt = run.seconds(kPromptRows, depth / kPageSize * kPageSize) / kPromptRows;
            const double products = 2.0 * kHeads * kHeadDim * static_cast<double>(depth);
            std::printf("%-6s %-12s %-7.1f %-10.3f %-6.1f %-14.0f %.1f\n", name, kernels->name, bytes / 1e6,
                        decode * 1e3, bytes / decode / 1e9, prompt * 1e6, products / prompt / 1e9);
        }
    }
    return 0;
}
