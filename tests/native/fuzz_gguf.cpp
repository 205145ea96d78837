// Opens the GGUF files that tests/fuzz sends, for a build with sanitizers and with every allocation counted.
//
// Standard input: for each case a u64 length and that many bytes. Standard output, for each, a line
//   STAGE PEAK LARGEST MESSAGE
// STAGE: how far it came, "metadata" (failed in it), "tensors" (failed in the tensor table or at placing), or
// "ok"; PEAK: most bytes allocated at once; LARGEST: the largest single allocation; MESSAGE: the error's, or
// empty.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/gguf.h"
#include "core/gguf_reader.h"
#include "hy3.h"

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

namespace {

using hy3::Gguf;

// Reads what an accessor can reach, so that a wrong bound shows under the sanitizer.
void touch(const Gguf& file) {
    volatile uint64_t seen = 0;
    uint64_t sum = 0;
    for (const auto& [key, value] : file.metadata()) {
        sum += file.find(key) == &value;
        if (const auto* array = std::get_if<hy3::GgufArray>(&value)) {
            for (const std::string_view text : array->strings())
                sum += text.empty() ? 0u : static_cast<uint8_t>(text.back());
            if (hy3::kind_bytes(array->kind) != 0 && array->count != 0) {
                sum += static_cast<uint64_t>(array->number_at(array->count - 1).value_or(0) > 0);
            }
        }
    }
    for (const hy3::TensorInfo& tensor : file.tensors()) {
        sum += tensor.data[0] + tensor.data[tensor.nbytes - 1] + (file.tensor(tensor.name) == &tensor);
    }
    seen = sum;
    (void)seen;
}

bool read_exactly(void* to, size_t n) {
    return std::fread(to, 1, n, stdin) == n;
}

// A file in memory, with a path; so nothing is written to disk 20,000 times.
std::string write_memory_file(int fd, const std::vector<char>& bytes) {
    if (::ftruncate(fd, 0) != 0 ||
        ::pwrite(fd, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        std::perror("fuzz_gguf");
        std::exit(1);
    }
    return "/proc/self/fd/" + std::to_string(fd);
}

struct Freer {
    void operator()(hy3_model* model) const { hy3_model_free(model); }
    void operator()(hy3_session* session) const { hy3_session_free(session); }
};

std::unique_ptr<hy3_model, Freer> open_model(const std::string& path) {
    hy3_model_options options = hy3_model_default_options();
    options.threads = 1;
    hy3_model* model = nullptr;
    if (hy3_model_open(path.c_str(), &options, &model) != HY3_OK)
        hy3::fail(hy3::Status::format, hy3_last_error());
    return std::unique_ptr<hy3_model, Freer>(model);
}

// Two tokens of a prompt and the logits after them. Errors are fine: NaN among the weights, say.
void compute(hy3_model* model) {
    hy3_session_options options = hy3_session_default_options();
    options.ctx = 8;
    hy3_session* opened = nullptr;
    if (hy3_session_open(model, &options, &opened) != HY3_OK) return;
    const std::unique_ptr<hy3_session, Freer> session(opened);
    hy3_config config;
    hy3_model_config(model, &config);
    std::vector<float> logits(static_cast<size_t>(config.vocab));
    const int32_t tokens[] = {0, config.vocab - 1};
    const hy3_step_item item{session.get(), tokens, 2, HY3_LOGITS_LAST, logits.data()};
    hy3_step(&item, 1, nullptr, nullptr);
}

void run_case(const std::string& path) {
    const char* stage = "metadata";
    std::string message;
    const size_t before = live;
    peak = before;
    largest = 0;
    size_t most = 0, single = 0;
    const auto note = [&] { most = peak - before, single = largest; };
    try {
        hy3::read_part(path, true);
        stage = "tensors";
        touch(*Gguf::open(path));
        stage = "model";
        const auto model = open_model(path);
        stage = "ok";
        note();
        compute(model.get());
    } catch (const hy3::Error& error) {
        note();
        message = error.what();
    }
    for (char& c : message) {
        if (c == '\n') c = ' ';
    }
    std::printf("%s %zu %zu %s\n", stage, most, single, message.c_str());
    std::fflush(stdout);
}

}  // namespace

int main() {
    const int fd = ::memfd_create("case.gguf", 0);
    uint64_t length = 0;
    std::vector<char> bytes;
    while (read_exactly(&length, sizeof(length))) {
        bytes.resize(length);
        if (!read_exactly(bytes.data(), length)) return 1;
        run_case(write_memory_file(fd, bytes));
    }
    return 0;
}
