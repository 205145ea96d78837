// A pool of threads for the loops of a step.
//
// A loop is a number of tasks. The caller opens it, works through the tasks itself, and closes it; workers
// join while it is open and take tasks as they come free. The caller waits only for those who joined: a
// worker that wakes late, or has no core to run on, holds up nothing. Workers spin briefly between loops,
// since the next one usually comes within microseconds, and sleep when it does not.
//
// A worker that joined and then loses its core to another program does hold up the loop, for as long as the
// system lets the other run: milliseconds, against loops of microseconds. When a wait is longer than tasks
// can explain, the pool does without one worker for ten times as long, so that such waits take a tenth of the
// time at most.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace hy3::cpu {

// A reference to something callable that lives as long as the call. (std::function would allocate for every
// loop.)
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
  public:
    template <typename Callable>
    FunctionRef(const Callable& callable)
        : object_(&callable), call_([](const void* object, Args... args) -> Result {
              return (*static_cast<const Callable*>(object))(args...);
          }) {}

    Result operator()(Args... args) const { return call_(object_, args...); }

  private:
    const void* object_;
    Result (*call_)(const void*, Args...);
};

class ThreadPool {
  public:
    // `next` is the task that the thread will take after this one, or -1 where that is open.
    using Body = FunctionRef<void(int64_t task, int64_t next, int thread)>;
    using Stop = FunctionRef<bool()>;

    // As many threads as asked for, or as the system gives; at most max_threads.
    explicit ThreadPool(int threads);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    static constexpr int max_threads = 4096;

    int size() const { return size_; }

    // Runs body for every task in 0..n-1, with thread from 0 (the caller) to size() - 1. `work`
    // is about how many multiply-adds a task is: loops with too little of it stay on the caller, and small
    // tasks are taken several at a time. `stop` is asked by the caller between its tasks, at least every
    // million multiply-adds; true leaves out the tasks not yet begun. Returns whether all ran. Rethrows the
    // first exception of a task. One caller at a time.
    bool run(int64_t n, int64_t work, Body body, Stop stop);

    // For a task to ask that takes long: whether to end early, because the loop was stopped.
    bool stopping(int thread);

  private:
    using Clock = std::chrono::steady_clock;

    void start(int threads);
    void abandon_workers();
    void work(int thread);
    bool await_loop(int thread, uint32_t last);
    bool join_loop(int thread, uint32_t& last);
    void leave_loop();
    int64_t take_tasks(int thread);
    int choose_workers();
    void open_loop();
    void close_loop(Clock::time_point begin, int64_t grabs);
    void await_workers();
    bool read_from_disk();
    void do_without_one(Clock::duration wait);

    std::vector<std::thread> workers_;
    int size_ = 1;
    unsigned forks_;  // of the process, when the workers were started

    // The state of the current loop, in one word (threads.cpp: the bits, and who may change them).
    alignas(64) std::atomic<uint32_t> state_{0};
    alignas(64) std::atomic<int64_t> next_{0};  // the first task not yet taken
    // Workers 1..admitted_ take part. Only the caller changes it.
    alignas(64) std::atomic<int> admitted_{0};
    Clock::time_point admit_next_;
    long disk_faults_ = 0;

    // Of the loop; written before it is opened.
    int64_t n_ = 0;
    int64_t grain_ = 1;  // tasks taken at a time
    const Body* body_ = nullptr;
    const Stop* stop_ = nullptr;
    std::atomic<bool> stopped_{false};  // no more tasks of this loop
    std::atomic<bool> failed_{false};
    std::exception_ptr failure_;  // by whoever set failed_
};

}  // namespace hy3::cpu
