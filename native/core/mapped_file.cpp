#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace hy3 {

namespace {

// Closes on every way out; the mapping outlives its descriptor.
class Descriptor {
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

[[noreturn]] void refuse(const std::string& path, int error) {
    const char* hint = "";
    if (error == ENOENT || error == ENOTDIR) hint = ". Check the path";
    if (error == EACCES || error == EPERM) hint = ". Give this user permission to read it";
    if (error == EMFILE || error == ENFILE) hint = ". Raise the limit on open files (ulimit -n)";
    fail(Status::io, path, ": cannot be opened: ", std::strerror(error), hint, ".");
}

void read_all(const std::string& path, int fd, uint8_t* to, uint64_t size) {
    uint64_t done = 0;
    while (done < size) {
        const size_t wanted = static_cast<size_t>(std::min<uint64_t>(size - done, 1u << 30));
        const ssize_t got = ::read(fd, to + done, wanted);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(Status::io, path, ": reading failed: ", std::strerror(errno), ".");
        if (got == 0) {
            fail(Status::io, path, ": ended after ", done, " of ", size,
                 " bytes. Another program is changing it; wait until it is done.");
        }
        done += static_cast<uint64_t>(got);
    }
}

// Experts are read here and there in a file of many gigabytes, and with pages of 4 KiB the processor keeps
// looking up where they are. Linux reads and maps 2 MiB at a time if asked before, where the file system can;
// what it has in memory already stays as it is.
void ask_for_huge_pages(void* address, size_t length) {
#if defined(MADV_HUGEPAGE)
    ::madvise(address, length, MADV_HUGEPAGE);  // a hint: without it all works, more slowly
#else
    (void)address, (void)length;
#endif
}

}  // namespace

std::shared_ptr<MappedFile> MappedFile::open(const std::string& path, bool use_mmap) {
    if (path.empty() || path.find('\0') != std::string::npos) {
        fail(Status::invalid_argument,
             "a file's path is empty or contains a NUL byte. Give the path of a file.");
    }
    // Without O_NONBLOCK, opening a FIFO that nobody writes to would wait for ever.
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) refuse(path, errno);
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0) refuse(path, errno);
    if (S_ISDIR(info.st_mode)) {
        fail(Status::io, path,
             ": is a directory. Give the path of a file, for a split model that of its first part.");
    }
    if (!S_ISREG(info.st_mode))
        fail(Status::io, path, ": is not a regular file. Give the path of a file on disk.");
    if (info.st_size <= 0) fail(Status::format, path, ": is empty. Download or convert it again.");
    const uint64_t size = static_cast<uint64_t>(info.st_size);
    if (size > std::numeric_limits<size_t>::max()) {
        fail(Status::out_of_memory, path, ": has ", size, " bytes, more than this system can address.");
    }

    const size_t length = static_cast<size_t>(size);
    void* address = use_mmap
                        ? ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd.get(), 0)
                        : ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
        fail(Status::out_of_memory, path, ": no room for its ", size, " bytes: ", std::strerror(errno),
             use_mmap ? ". Raise the limit on address space (ulimit -v)."
                      : ". Map it instead (leave out --no-mmap).");
    }
    ask_for_huge_pages(address, length);
    uint8_t* bytes = static_cast<uint8_t*>(address);
    std::shared_ptr<MappedFile> file(new MappedFile(path, bytes, size, use_mmap));
    if (!use_mmap) {
        read_all(path, fd.get(), bytes, size);
        ::mprotect(address, length, PROT_READ);  // only a safeguard; the bytes are good either way
    }
    return file;
}

MappedFile::MappedFile(std::string path, const uint8_t* data, uint64_t size, bool mapped)
    : path_(std::move(path)), data_(data), size_(size), mapped_(mapped) {}

MappedFile::~MappedFile() {
    ::munmap(const_cast<uint8_t*>(data_), static_cast<size_t>(size_));
}

bool MappedFile::lock() {
    return ::mlock(data_, static_cast<size_t>(size_)) == 0;
}

}  // namespace hy3
