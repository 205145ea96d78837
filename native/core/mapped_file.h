// A whole file as read-only bytes: mapped, or read into private memory when mapping is not wanted.
//
// Mapping is the default: weights are computed on in place, and the kernel may drop and reread their pages.
// The price: when another process truncates the file while it is mapped, touching a page past the new end
// raises SIGBUS, which no check made beforehand can prevent. A file that others may rewrite in place (rather
// than write aside and rename, as `hy3 convert` does) should be opened with use_mmap = false.
//
// Errors (Status::io, Status::format for an empty file) name the path: missing, no permission, a directory,
// not a regular file (a FIFO would block, a device has no size), empty, too large for the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace hy3 {

class MappedFile {
  public:
    static std::shared_ptr<MappedFile> open(const std::string& path, bool use_mmap = true);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    const uint8_t* data() const { return data_; }
    uint64_t size() const { return size_; }
    const std::string& path() const { return path_; }
    bool is_mapped() const { return mapped_; }

    // Pins the bytes in memory (mlock). False when the system refuses, usually for RLIMIT_MEMLOCK.
    bool lock();

  private:
    MappedFile(std::string path, const uint8_t* data, uint64_t size, bool mapped);

    std::string path_;
    const uint8_t* data_;
    uint64_t size_;
    bool mapped_;
};

}  // namespace hy3
