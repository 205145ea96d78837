#include "core/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace hy3 {

OutputFile::OutputFile(const std::string& path) : path_(path), partial_(path + ".partial-XXXXXX"), fd_(-1) {
    if (path.empty() || path.find('\0') != std::string::npos)
        fail(Status::invalid_argument,
             "A file's path is empty or contains a NUL byte. Give the path of a file.");
    fd_ = ::mkostemp(partial_.data(), O_CLOEXEC);
    if (fd_ < 0) refuse("cannot be opened");
}

OutputFile::~OutputFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(partial_.c_str());
}

void OutputFile::write(const void* data, size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t done = ::write(fd_, at, std::min(size, size_t{1} << 30));
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) refuse("cannot be written");
        at += done;
        size -= static_cast<size_t>(done);
    }
}

void OutputFile::flush() {
    if (::fsync(fd_) != 0) refuse("cannot be written");
}

void OutputFile::commit() {
    flush();
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) refuse("cannot be put in its place");
    ::close(fd_);
    fd_ = -1;
}

void OutputFile::refuse(const char* what) const {
    const int error = errno;
    const char* hint = "Give another file";
    if (error == ENOENT || error == ENOTDIR) hint = "Check the path";
    if (error == EACCES || error == EPERM || error == EROFS) hint = "Give a file that this user may write";
    if (error == ENOSPC || error == EDQUOT) hint = "Free some space, or write to another disk";
    fail(Status::io, path_, ": ", what, ": ", std::strerror(error), ". ", hint, ".");
}

}  // namespace hy3
