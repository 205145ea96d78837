#include "cpu/probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

#include "core/error.h"
#include "cpu/cores.h"
#include "cpu/kernels.h"
#include "cpu/threads.h"

namespace hy3::cpu {
namespace {

constexpr int64_t kTaskBytes = 4 << 20;  // about a millisecond of one core, for the pool worth sharing
constexpr int64_t kRounds = 1 << 15;     // of products between two looks at the clock
constexpr auto kTaskTime = std::chrono::milliseconds(20);
constexpr int kRuns = 5;

using Clock = std::chrono::steady_clock;

// A run's tasks return what they got done; what the best run got done in a second.
double best_rate(ThreadPool& pool, int64_t tasks, const std::function<int64_t(int64_t)>& task,
                 AbortCheck& abort) {
    double best = 0.0;
    for (int run = 0; run < kRuns; run++) {
        std::atomic<int64_t> done{0};
        const auto begin = Clock::now();
        if (!pool.run(
                tasks, kTaskBytes, [&](int64_t i, int64_t, int) { done += task(i); },
                [&] { return abort(); }))
            fail(Status::aborted, "The measurement was stopped.");
        const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
        best = std::max(best, static_cast<double>(done) / seconds);
    }
    return best;
}

}  // namespace

MachineSpeed measure_machine(int threads, int64_t span, AbortCheck& abort) {
    const Kernels& kernels = select_kernels();
    ThreadPool pool(threads == 0 ? usable_cores() : threads);
    const int64_t tasks = span / kTaskBytes;
    constexpr std::align_val_t alignment{64};
    const auto release = [](uint8_t* block) { ::operator delete(block, alignment); };
    const std::unique_ptr<uint8_t, decltype(release)> memory(
        static_cast<uint8_t*>(::operator new(static_cast<size_t>(tasks * kTaskBytes), alignment)), release);

    const auto fill = [&](int64_t task, int64_t, int) {
        std::memset(memory.get() + task * kTaskBytes, static_cast<int>(task) | 1, kTaskBytes);
    };
    if (!pool.run(tasks, kTaskBytes, fill, [&] { return abort(); }))
        fail(Status::aborted, "The measurement was stopped.");

    std::atomic<int32_t> sink{0};  // keeps the work from being left out
    const auto read = [&](int64_t task) {
        sink ^= kernels.read_memory(memory.get() + task * kTaskBytes, kTaskBytes);
        return kTaskBytes;
    };
    const auto multiply = [&](int64_t task) {
        const auto end = Clock::now() + kTaskTime;
        int32_t sum = static_cast<int32_t>(task);
        int64_t ops = 0;
        do ops += kernels.multiply_int8(kRounds, &sum);
        while (Clock::now() < end);
        sink ^= sum;
        return ops;
    };
    const double read_bytes = best_rate(pool, tasks, read, abort);
    return {read_bytes, best_rate(pool, pool.size(), multiply, abort)};
}

}  // namespace hy3::cpu
