#include "cpu/threads.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#endif

namespace hy3::cpu {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    std::this_thread::yield();
#endif
}

#if defined(__linux__)
std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// Cores of the affinity mask; hardware threads that share a core are one.
int cores_in_mask() {
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 0;
    std::set<std::string> cores;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &mask)) continue;
        const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
        const std::string siblings = first_line(topology + "thread_siblings_list");
        cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
    }
    return static_cast<int>(cores.size());
}

// The cgroup's CPU share in cores, rounded up; 0: no limit. cgroup v2: "MAX PERIOD", v1: two files.
int cgroup_cores() {
    std::ifstream v2("/sys/fs/cgroup/cpu.max");
    std::string quota;
    double period = 0.0;
    if (!(v2 >> quota >> period)) {
        quota = first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
        std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
    }
    if (quota.empty() || quota == "max" || quota.front() == '-' || !(period > 0.0)) return 0;
    return std::max(1, static_cast<int>(std::strtod(quota.c_str(), nullptr) / period + 0.999));
}
#endif

}  // namespace

int usable_cores() {
    int cores = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
    if (const int in_mask = cores_in_mask(); in_mask > 0) cores = in_mask;
    if (const int share = cgroup_cores(); share > 0) cores = std::min(cores, share);
#endif
    return std::max(1, cores);
}

ThreadPool::ThreadPool(int threads) {
    workers_.reserve(static_cast<size_t>(threads - 1));
    try {
        for (int i = 1; i < threads; i++) workers_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error&) {
        // The system has no more threads: go on with those there are. The answers do not depend on it.
    }
}

ThreadPool::~ThreadPool() {
    quit_ = true;
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::run(int64_t n, const std::function<void(int64_t, int)>& body,
                     const std::function<bool()>& stop) {
    body_ = &body;
    stop_ = &stop;
    n_ = n;
    // Few tasks a grab, so that the last ones end together; more where there are many, so that grabs stay
    // rare.
    grain_ = std::max<int64_t>(1, n / (size() * 16));
    next_.store(0, std::memory_order_relaxed);
    stopped_.store(false, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    failure_ = nullptr;
    if (n <= 1 || workers_.empty()) {
        take_tasks(0);
    } else {
        unfinished_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
        round_.fetch_add(1, std::memory_order_release);
        round_.notify_all();
        take_tasks(0);
        int spins = 0;
        while (unfinished_.load(std::memory_order_acquire) != 0) {
            pause_briefly();
            if (++spins % 4096 == 0) std::this_thread::yield();
        }
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return !stopped_.load(std::memory_order_relaxed);
}

void ThreadPool::work(int thread) {
    uint32_t seen = 0;
    while (true) {
        // About 50 microseconds of spinning, then sleep.
        for (int spins = 0; spins < 2000 && round_.load(std::memory_order_acquire) == seen; spins++)
            pause_briefly();
        while (round_.load(std::memory_order_acquire) == seen) round_.wait(seen, std::memory_order_acquire);
        seen = round_.load(std::memory_order_acquire);
        if (quit_) return;
        take_tasks(thread);
        unfinished_.fetch_sub(1, std::memory_order_release);
    }
}

void ThreadPool::take_tasks(int thread) {
    try {
        while (!stopped_.load(std::memory_order_relaxed)) {
            const int64_t first = next_.fetch_add(grain_, std::memory_order_relaxed);
            if (first >= n_) return;
            const int64_t end = std::min(n_, first + grain_);
            for (int64_t task = first; task < end && !stopped_.load(std::memory_order_relaxed); task++) {
                (*body_)(task, thread);
                if (thread == 0 && (*stop_)()) stopped_.store(true, std::memory_order_relaxed);
            }
        }
    } catch (...) {
        if (!failed_.exchange(true)) failure_ = std::current_exception();
        stopped_.store(true, std::memory_order_relaxed);
    }
}

}  // namespace hy3::cpu
