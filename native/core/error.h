// Errors of the native core. Code throws hy3::Error; the C boundary (native/api) turns it into a
// status code and a message. A message reads "WHAT. HINT." and names the file, key, tensor or option
// concerned.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace hy3 {

// Mirrors hy3_status in hy3.h; the values are part of the C interface.
enum class Status : int {
    ok = 0,
    invalid_argument = 1,  // the caller asked for something that makes no sense
    format = 2,            // a file is broken or hostile
    unsupported = 3,       // valid, but not something this engine does
    out_of_memory = 4,
    context_full = 5,  // more positions than the session's context holds
    io = 6,            // the operating system refused
    aborted = 7,       // the abort callback said stop
    internal = 8,      // a bug
};

class Error : public std::runtime_error {
  public:
    Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
    Status status() const { return status_; }

  private:
    Status status_;
};

// Concatenates its arguments as an ostream would print them.
template <typename... Args>
std::string cat(const Args&... args) {
    std::ostringstream out;
    (out << ... << args);
    return out.str();
}

template <typename... Args>
[[noreturn]] void fail(Status status, const Args&... args) {
    throw Error(status, cat(args...));
}

}  // namespace hy3
