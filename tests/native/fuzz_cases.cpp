#include "fuzz_cases.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

std::atomic<size_t> live{0}, peak{0}, largest{0};

// The size stands in front of what is handed out, in room that keeps the alignment, so that freeing can
// subtract it.
constexpr size_t default_room = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

void* counted(size_t n, size_t room) noexcept {
    void* block = std::aligned_alloc(room, (n + room + room - 1) / room * room);
    if (!block) return nullptr;
    *static_cast<size_t*>(block) = n;
    const size_t now = live += n;
    if (now > peak) peak = now;
    if (n > largest) largest = n;
    return static_cast<char*>(block) + room;
}

void* counted_or_throw(size_t n, size_t room) {
    void* p = counted(n, room);
    if (!p) throw std::bad_alloc();
    return p;
}

void uncounted(void* p, size_t room) noexcept {
    if (!p) return;
    void* block = static_cast<char*>(p) - room;
    live -= *static_cast<size_t*>(block);
    std::free(block);
}

size_t room_for(std::align_val_t alignment) {
    return std::max(default_room, static_cast<size_t>(alignment));
}

}  // namespace

// All forms: under AddressSanitizer the library's own do not lead to these.
void* operator new(size_t n) {
    return counted_or_throw(n, default_room);
}
void* operator new(size_t n, const std::nothrow_t&) noexcept {
    return counted(n, default_room);
}
void* operator new(size_t n, std::align_val_t alignment) {
    return counted_or_throw(n, room_for(alignment));
}
void* operator new(size_t n, std::align_val_t alignment, const std::nothrow_t&) noexcept {
    return counted(n, room_for(alignment));
}
void* operator new[](size_t n) {
    return counted_or_throw(n, default_room);
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept {
    return counted(n, default_room);
}
void* operator new[](size_t n, std::align_val_t alignment) {
    return counted_or_throw(n, room_for(alignment));
}
void operator delete(void* p) noexcept {
    uncounted(p, default_room);
}
void operator delete(void* p, size_t) noexcept {
    uncounted(p, default_room);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
    uncounted(p, default_room);
}
void operator delete(void* p, std::align_val_t alignment) noexcept {
    uncounted(p, room_for(alignment));
}
void operator delete(void* p, size_t, std::align_val_t alignment) noexcept {
    uncounted(p, room_for(alignment));
}
void operator delete[](void* p) noexcept {
    uncounted(p, default_room);
}
void operator delete[](void* p, size_t) noexcept {
    uncounted(p, default_room);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
    uncounted(p, default_room);
}
void operator delete[](void* p, std::align_val_t alignment) noexcept {
    uncounted(p, room_for(alignment));
}
void operator delete[](void* p, size_t, std::align_val_t alignment) noexcept {
    uncounted(p, room_for(alignment));
}

namespace hy3::fuzz {
namespace {

bool read_exactly(void* to, size_t n) {
    return std::fread(to, 1, n, stdin) == n;
}

// A file in memory, with a path; so nothing is written to disk 20,000 times.
std::string write_memory_file(int fd, const std::vector<char>& bytes) {
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        std::perror("fuzz");
        std::exit(1);
    }
    return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace

Watch::Watch() : before_(live) {
    peak = before_;
    largest = 0;
}

Outcome Watch::outcome(const char* stage, const std::string& message) const {
    const size_t most = peak - before_, single = largest;
    return {stage, most, single, message};
}

int run_cases(const std::function<Outcome(const std::string& path)>& run_case) {
    const int fd = ::memfd_create("case", 0);
    uint64_t length = 0;
    std::vector<char> bytes;
    while (read_exactly(&length, sizeof(length))) {
        bytes.resize(length);
        if (!read_exactly(bytes.data(), length)) return 1;
        Outcome outcome = run_case(write_memory_file(fd, bytes));
        std::replace(outcome.message.begin(), outcome.message.end(), '\n', ' ');
        std::printf("%s %zu %zu %s\n", outcome.stage, outcome.peak, outcome.largest, outcome.message.c_str());
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace hy3::fuzz
