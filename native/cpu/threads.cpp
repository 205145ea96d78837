#include "cpu/threads.h"

#include <algorithm>
#include <system_error>
#include <utility>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sys/resource.h>
#endif

namespace hy3::cpu {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The bits of ThreadPool::state_:
//
//   0-12   workers that have joined the loop and not left it
//   13     the pool ends; set once
//   14     the caller sleeps until the last worker has left
//   15     the loop is open
//   16-31  the number of the loop, so that a worker joins each at most once. (It wraps: a worker that slept
//          through exactly 65,536 loops misses one.)
//
// Memory order. Opening is a release store that comes after all writes to the loop's members; joining is a
// compare-exchange that acquires. Between the two come only read-modify-writes (others joining and leaving),
// which continue the store's release sequence, so whoever joins sees the members, and with them everything
// that the caller and the loops before have written. Leaving is a release subtraction; the caller's acquire
// load that finds no worker inside reads the last of them or a read-modify-write after it, and so sees what
// every worker wrote: results, and failure_. No worker touches the members after it has left, and none joins
// after the close, so the caller may then change them. next_, stopped_ and failed_ only hand out numbers and
// raise flags; nothing is read on the strength of them, so they are relaxed.
//
// Sleep. A worker sleeps on the value it saw, so an opening before it sleeps is not missed; opening stores
// with seq_cst, because notify_all() looks for sleepers first and that look must not move before the store.
// Closing and leaving wake nobody but a caller that said (bit 14) that it sleeps.
constexpr uint32_t kOneInside = 1, kInside = (1u << 13) - 1;
constexpr uint32_t kEnds = 1u << 13;
constexpr uint32_t kCallerSleeps = 1u << 14;
constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kOneLoop = 1u << 16;
static_assert(ThreadPool::max_threads <= kInside);

// Multiply-adds, of which a core does some ten in a nanosecond. Below the first, a loop is done sooner than
// another core could be asked to help; below the second, taking a task costs as much as doing it; the third
// is how long a thread may go without asking whether to stop.
constexpr int64_t kWorthSharing = 32 << 10, kWorthTaking = 16 << 10, kUninterrupted = 1 << 20;

// How long a thread spins before it sleeps: longer than the gap between two tokens, and too short to be seen
// when idle.
constexpr auto kSpin = microseconds(100);
// A wait for workers that is this much longer than tasks can explain is a stall.
constexpr auto kStall = microseconds(300);
constexpr int kRestPerStall = 10;
constexpr auto kLongestRest = std::chrono::seconds(1);

void pause_briefly() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // some ten nanoseconds; "yield" does nothing on most cores
#endif
}

// Whether `ready` within `limit`.
template <typename Ready>
bool spin(std::chrono::steady_clock::duration limit, const Ready& ready) {
    const auto until = std::chrono::steady_clock::now() + limit;
    do {
        for (int i = 0; i < 32; i++) {
            if (ready()) return true;
            pause_briefly();
        }
    } while (std::chrono::steady_clock::now() < until);
    return false;
}

bool is_open_after(uint32_t state, uint32_t last) {
    return (state & kOpen) != 0 && state / kOneLoop != last;
}

// How often this process is the child of a fork. A child has none of its parent's threads.
unsigned forks() {
    static std::atomic<unsigned> count{0};
#if defined(__unix__) || defined(__APPLE__)
    static const int registered = pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1); });
    (void)registered;
#endif
    return count.load(std::memory_order_relaxed);
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
    start(threads);
}

ThreadPool::~ThreadPool() {
    if (forks() != forks_) {
        abandon_workers();
        return;
    }
    state_.fetch_or(kEnds);
    state_.notify_all();
    admitted_.store(max_threads);  // no worker is that many: all wake
    admitted_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start(int threads) {
    forks_ = forks();
    read_from_disk();
    const int wanted = std::clamp(threads, 1, max_threads) - 1;
    admitted_.store(wanted, std::memory_order_relaxed);
    workers_.reserve(static_cast<size_t>(wanted));
    try {
        for (int i = 1; i <= wanted; i++) workers_.emplace_back([this, i] { work(i); });
    } catch (const std::system_error&) {
        // The system has no more threads: go on with those there are. The answers do not depend on it.
    }
    admitted_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    size_ = std::max(size_, static_cast<int>(workers_.size()) + 1);
}

// In the child of a fork: the handles name threads that do not exist, and can neither be joined nor
// destroyed.
void ThreadPool::abandon_workers() {
    static auto& abandoned = *new std::vector<std::vector<std::thread>>;
    abandoned.push_back(std::move(workers_));
    workers_.clear();
    state_.store(0, std::memory_order_relaxed);
}

bool ThreadPool::run(int64_t n, int64_t work, Body body, Stop stop) {
    body_ = &body;
    stop_ = &stop;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    stopped_.store(false, std::memory_order_relaxed);
    failed_.store(false, std::memory_order_relaxed);
    const int64_t task = std::max<int64_t>(1, work);
    const bool share = size_ > 1 && n > 1 && n > kWorthSharing / task && choose_workers() > 0;
    // Small tasks are taken several at a time, and large numbers of tasks a small part at a time, so that the
    // last ones end together; but not so many that a thread gets none or goes on for long.
    const int64_t part = share ? n / (16 * size_) : n, enough = kWorthTaking / task;
    grain_ = std::clamp(std::max(part, std::min(enough, n / (2 * size_))), int64_t{1},
                        std::max<int64_t>(1, kUninterrupted / task));
    if (share) {
        const Clock::time_point begin = Clock::now();
        open_loop();
        const int64_t grabs = take_tasks(0);
        close_loop(begin, grabs);
    } else {
        take_tasks(0);
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return !stopped_.load(std::memory_order_relaxed);
}

// Brings back a worker whose rest is over. Returns how many there are.
int ThreadPool::choose_workers() {
    if (forks() != forks_) {
        abandon_workers();
        start(size_);
    }
    int admitted = admitted_.load(std::memory_order_relaxed);
    if (admitted == static_cast<int>(workers_.size()) || Clock::now() < admit_next_) return admitted;
    admitted_.store(++admitted, std::memory_order_relaxed);
    admitted_.notify_all();
    return admitted;
}

void ThreadPool::open_loop() {
    const uint32_t state = state_.load(std::memory_order_relaxed);  // nobody is inside: only we change it
    state_.store((state / kOneLoop + 1) * kOneLoop | kOpen);
    state_.notify_all();
}

void ThreadPool::close_loop(Clock::time_point begin, int64_t grabs) {
    const uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acquire);
    if ((state & kInside) == 0) return;
    const Clock::time_point end = Clock::now();
    await_workers();
    const Clock::duration wait = Clock::now() - end;
    // A worker may have begun its last tasks when we ended ours, and they may be larger than ours; and a wait
    // for the disk is nobody's fault.
    const Clock::duration ours = end - begin;
    if (grabs > 0 && wait > kStall + 2 * (ours / grabs) + ours / 4 && !read_from_disk()) do_without_one(wait);
}

void ThreadPool::await_workers() {
    const auto inside = [&] { return (state_.load(std::memory_order_acquire) & kInside) != 0; };
    if (spin(kSpin, [&] { return !inside(); })) return;
    uint32_t state = state_.fetch_or(kCallerSleeps, std::memory_order_acquire) | kCallerSleeps;
    while ((state & kInside) != 0) {
        state_.wait(state, std::memory_order_acquire);
        state = state_.load(std::memory_order_acquire);
    }
    state_.fetch_and(~kCallerSleeps, std::memory_order_relaxed);
}

// Whether the process has waited for the disk since this was asked last.
bool ThreadPool::read_from_disk() {
#if defined(__unix__) || defined(__APPLE__)
    rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return false;
    return std::exchange(disk_faults_, usage.ru_majflt) != usage.ru_majflt;
#else
    return false;
#endif
}

void ThreadPool::do_without_one(Clock::duration wait) {
    admit_next_ = Clock::now() + std::min<Clock::duration>(kRestPerStall * wait, kLongestRest);
    const int admitted = admitted_.load(std::memory_order_relaxed);
    if (admitted > 0) admitted_.store(admitted - 1, std::memory_order_relaxed);
}

void ThreadPool::work(int thread) {
    uint32_t last = 0;
    while (await_loop(thread, last)) {
        if (!join_loop(thread, last)) continue;
        take_tasks(thread);
        leave_loop();
    }
}

// Until a loop opens that is not `last`; false when the pool ends.
bool ThreadPool::await_loop(int thread, uint32_t last) {
    int admitted = admitted_.load(std::memory_order_relaxed);
    while (admitted < thread) {
        admitted_.wait(admitted, std::memory_order_relaxed);
        admitted = admitted_.load(std::memory_order_relaxed);
    }
    uint32_t state = 0;
    const auto ready = [&] {
        state = state_.load(std::memory_order_relaxed);
        return (state & kEnds) != 0 || is_open_after(state, last);
    };
    if (!spin(kSpin, ready) && !ready()) state_.wait(state, std::memory_order_relaxed);
    return (state_.load(std::memory_order_relaxed) & kEnds) == 0;
}

bool ThreadPool::join_loop(int thread, uint32_t& last) {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while (is_open_after(state, last) && thread <= admitted_.load(std::memory_order_relaxed)) {
        if (!state_.compare_exchange_weak(state, state + kOneInside, std::memory_order_acquire,
                                          std::memory_order_relaxed))
            continue;
        last = state / kOneLoop;
        return true;
    }
    return false;
}

void ThreadPool::leave_loop() {
    const uint32_t state = state_.fetch_sub(kOneInside, std::memory_order_release) - kOneInside;
    if ((state & kInside) == 0 && (state & kCallerSleeps) != 0) state_.notify_all();
}

bool ThreadPool::stopping(int thread) {
    if (thread == 0 && (*stop_)()) stopped_.store(true, std::memory_order_relaxed);
    return stopped_.load(std::memory_order_relaxed);
}

// Returns how often it took some.
int64_t ThreadPool::take_tasks(int thread) {
    int64_t grabs = 0;
    try {
        const auto take = [this] { return next_.fetch_add(grain_, std::memory_order_relaxed); };
        for (int64_t first = take(); first < n_ && !stopped_.load(std::memory_order_relaxed);) {
            const int64_t last = std::min(n_, first + grain_) - 1;
            for (int64_t task = first; task < last; task++) (*body_)(task, task + 1, thread);
            // The next are taken before the last of these begins, so that it can ask for their memory. In the
            // last round they are left to whoever is free first.
            const bool early = next_.load(std::memory_order_relaxed) < n_ - grain_ * size_;
            const int64_t then = early ? take() : n_;
            (*body_)(last, then < n_ ? then : -1, thread);
            grabs++;
            stopping(thread);
            first = early ? then : take();
        }
    } catch (...) {
        if (!failed_.exchange(true, std::memory_order_relaxed)) failure_ = std::current_exception();
        stopped_.store(true, std::memory_order_relaxed);
    }
    return grabs;
}

}  // namespace hy3::cpu
