// The thread pool and the count of cores.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "cpu/cores.h"
#include "cpu/threads.h"
#include "main.h"

namespace hy3 {
namespace {

using namespace std::chrono_literals;
using cpu::ThreadPool;
using Clock = std::chrono::steady_clock;

// Enough multiply-adds for a loop to be shared between threads, task by task.
constexpr int64_t kLarge = 1 << 20;

constexpr auto never = [] { return false; };

void busy(int64_t microseconds) {
    const auto until = Clock::now() + std::chrono::microseconds(microseconds);
    while (Clock::now() < until) {
    }
}

// Whether `condition` within five seconds.
template <typename Condition>
bool soon(const Condition& condition) {
    const auto until = Clock::now() + 5s;
    while (!condition())
        if (Clock::now() > until) return false;
    return true;
}

// One loop of random shape: every task must run once, on one thread at a time, and see what the loop before
// wrote. `before` and `now` are plain memory: only the pool orders the accesses.
void random_loop(ThreadPool& pool, std::mt19937& random, std::vector<int64_t>& before,
                 std::vector<int64_t>& now) {
    const auto n = static_cast<int64_t>(random() % 70);
    const int64_t work = int64_t{1} << random() % 22;
    const int64_t longest = random() % 8 == 0 ? 60 : 2;
    now.assign(static_cast<size_t>(n), 0);
    std::vector<int64_t> tasks_of(static_cast<size_t>(pool.size()), 0);
    std::vector<int64_t> announced(static_cast<size_t>(pool.size()), -1);  // to each thread, as its next task
    int64_t expected = 0;
    for (const int64_t x : before) expected += x;
    const bool all = pool.run(
        n, work,
        [&](int64_t task, int64_t next, int thread) {
            const int64_t said = std::exchange(announced[static_cast<size_t>(thread)], next);
            if (said >= 0) CHECK_EQ(task, said);
            busy(task * 7 % longest);
            int64_t sum = 0;
            for (const int64_t x : before) sum += x;
            now[static_cast<size_t>(task)] += sum + task + 1;
            tasks_of[static_cast<size_t>(thread)]++;
        },
        never);
    CHECK(all);
    int64_t ran = 0;
    for (const int64_t tasks : tasks_of) ran += tasks;
    CHECK_EQ(ran, n);
    for (const int64_t next : announced) CHECK_EQ(next, -1);
    for (int64_t task = 0; task < n; task++)
        if (now[static_cast<size_t>(task)] != expected + task + 1)
            test::report_failure(__FILE__, __LINE__, cat("task ", task, " of ", n, " did not run once"));
    for (int64_t& x : now) x %= 1000;
    before.swap(now);
}

TEST(a_pool_runs_every_task_once_in_loops_of_any_size) {
    std::vector<std::thread> callers;
    for (const int threads : {1, 2, 3, 8})
        callers.emplace_back([threads] {
            ThreadPool pool(threads);
            std::mt19937 random(static_cast<unsigned>(threads));
            std::vector<int64_t> before(8, 1), now;
            for (int loop = 0; loop < 2000; loop++) {
                random_loop(pool, random, before, now);
                if (random() % 100 == 0) std::this_thread::sleep_for(150us);  // so that workers fall asleep
            }
        });
    for (std::thread& caller : callers) caller.join();
}

TEST(a_pool_begins_and_ends_at_any_time) {
    for (int round = 0; round < 200; round++) {
        ThreadPool pool(1 + round % 4);
        std::atomic<int> ran{0};
        for (int loop = 0; loop < round % 3; loop++)
            pool.run(5, kLarge, [&](int64_t, int64_t, int) { ran++; }, never);
        if (round % 5 == 0) std::this_thread::sleep_for(200us);
        CHECK_EQ(ran.load(), 5 * (round % 3));
    }
}

TEST(small_loops_stay_on_the_caller) {
    ThreadPool pool(3);
    for (int loop = 0; loop < 200; loop++) {
        const auto only_caller = [](int64_t, int64_t, int thread) { CHECK_EQ(thread, 0); };
        pool.run(100, 100, only_caller, never);
        pool.run(1, kLarge, only_caller, never);
    }
}

TEST(an_exception_of_any_task_reaches_the_caller) {
    ThreadPool pool(3);
    for (int loop = 0; loop < 300; loop++) {
        const int64_t bad = loop % 20;
        try {
            pool.run(
                20, kLarge,
                [&](int64_t task, int64_t, int) {
                    busy(5);
                    if (task == bad) throw std::runtime_error("task");
                },
                never);
            CHECK(!"no exception");
        } catch (const std::runtime_error& error) {
            CHECK_EQ(std::string(error.what()), "task");
        }
        std::atomic<int> ran{0};
        CHECK(pool.run(7, kLarge, [&](int64_t, int64_t, int) { ran++; }, never));
        CHECK_EQ(ran.load(), 7);
    }
}

TEST(a_loop_that_is_told_to_stop_leaves_out_the_rest) {
    for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::atomic<int> ran{0};
        const auto body = [&](int64_t, int64_t, int) {
            busy(20);
            ran++;
        };
        CHECK(!pool.run(1000, kLarge, body, [&] { return ran >= 10; }));
        CHECK(ran >= 10 && ran < 100);
        ran = 0;
        CHECK(pool.run(20, kLarge, body, never));
        CHECK_EQ(ran.load(), 20);
    }
}

TEST(a_task_that_takes_long_can_end_with_its_loop) {
    for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::atomic<int> asked{0};
        const auto body = [&](int64_t, int64_t, int thread) {
            while (!pool.stopping(thread) && asked < 100'000) {
                asked++;
                busy(20);
            }
        };
        CHECK(!pool.run(threads, kLarge, body, [&] { return asked >= 50; }));
        CHECK(asked < 1000);
    }
}

// Whether a worker takes part in one loop, and stays in it for some time. The caller gives it a few
// milliseconds to come.
bool worker_comes(ThreadPool& pool, int64_t stays_us = 0) {
    std::atomic<bool> came{false};
    pool.run(
        4, kLarge,
        [&](int64_t, int64_t, int thread) {
            if (thread == 0) {
                const auto until = Clock::now() + 1ms;
                while (!came && Clock::now() < until) std::this_thread::yield();
            } else if (!came.exchange(true)) {
                busy(stays_us);
            }
        },
        never);
    return came;
}

TEST(a_worker_that_stalls_is_left_out_for_a_while) {
    ThreadPool pool(2);
    if (pool.size() < 2) return;
    const auto alone = [&] {
        std::atomic<int64_t> caller_ran{0};
        for (int loop = 0; loop < 100; loop++)
            pool.run(10, kLarge, [&](int64_t, int64_t, int thread) { caller_ran += thread == 0; }, never);
        return caller_ran == 1000;
    };
    CHECK(soon([&] { return worker_comes(pool); }));
    CHECK(soon([&] { return worker_comes(pool, 30'000) && alone(); }));
    CHECK(soon([&] { return worker_comes(pool); }));
}

TEST(a_child_of_fork_computes_with_threads_of_its_own) {
    ThreadPool pool(2);
    const auto run = [&] {
        std::atomic<int64_t> sum{0};
        pool.run(100, kLarge, [&](int64_t task, int64_t, int) { sum += task; }, never);
        return sum == 4950;
    };
    CHECK(run());
    const pid_t child = fork();
    if (child == 0) {
        const bool fine = run() && (pool.size() == 1 || soon([&] { return worker_comes(pool); }));
        _exit(fine ? 0 : 1);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK(run());
}

// A directory with the files that the kernel shows a process about its control groups.
class FakeRoot {
  public:
    FakeRoot() : path_(std::filesystem::temp_directory_path() / cat("hy3-cgroup-", getpid())) {
        std::filesystem::remove_all(path_);
    }
    ~FakeRoot() { std::filesystem::remove_all(path_); }
    FakeRoot& write(const std::string& name, const std::string& text) {
        std::filesystem::create_directories((path_ / name).parent_path());
        std::ofstream(path_ / name) << text << '\n';
        return *this;
    }
    double cores() const { return cpu::cgroup_cores(path_.string()); }

  private:
    std::filesystem::path path_;
};

TEST(cgroup_v2_limits_count_at_every_level) {
    FakeRoot root;
    CHECK_EQ(root.cores(), 0.0);
    root.write("proc/self/cgroup", "0::/user/job");
    CHECK_EQ(root.cores(), 0.0);
    root.write("sys/fs/cgroup/user/job/cpu.max", "max 100000");
    CHECK_EQ(root.cores(), 0.0);
    root.write("sys/fs/cgroup/user/cpu.max", "250000 100000");
    CHECK_EQ(root.cores(), 2.5);
    root.write("sys/fs/cgroup/user/job/cpu.max", "50000 100000");
    CHECK_EQ(root.cores(), 0.5);
}

TEST(a_container_sees_its_cgroup_limit_at_the_root) {
    FakeRoot root;
    root.write("proc/self/cgroup", "0::/").write("sys/fs/cgroup/cpu.max", "300000 100000");
    CHECK_EQ(root.cores(), 3.0);
}

TEST(cgroup_v1_limits_count_though_the_host_path_is_not_shown) {
    FakeRoot root;
    root.write("proc/self/cgroup", "12:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/docker/1");
    root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
    root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK_EQ(root.cores(), 0.0);
    root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000");
    CHECK_EQ(root.cores(), 1.5);
}

TEST(there_is_always_a_usable_core) {
    CHECK(cpu::usable_cores() >= 1);
    CHECK(cpu::usable_cores() <= static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace hy3
