// A pool of threads for the loops of a step. Threads spin briefly between loops, since the next one usually
// comes within microseconds, and sleep when it does not.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace hy3::cpu {

// Physical cores that this process may use: its affinity mask without second hardware threads of a core, and
// not more than the cgroup's share.
int usable_cores();

class ThreadPool {
  public:
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    // Runs body(task, thread) for every task in 0..n-1; threads take tasks as they come free, so a slow core
    // holds up nothing. `stop` is asked between the caller's tasks; true leaves out the tasks not yet begun.
    // Returns whether all ran. Rethrows the first exception of a task.
    bool run(int64_t n, const std::function<void(int64_t, int)>& body, const std::function<bool()>& stop);

  private:
    void work(int thread);
    void take_tasks(int thread);

    std::vector<std::thread> workers_;
    std::atomic<uint32_t> round_{0};  // counts loops; a change wakes the workers
    std::atomic<int> unfinished_{0};  // workers that have not left the current loop
    std::atomic<int64_t> next_{0};
    std::atomic<bool> stopped_{false};  // no more tasks of this loop
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;
    bool quit_ = false;
    int64_t n_ = 0;
    int64_t grain_ = 1;
    const std::function<void(int64_t, int)>* body_ = nullptr;
    const std::function<bool()>* stop_ = nullptr;
};

}  // namespace hy3::cpu
