// A bounds-checked position in a file's bytes: the only way the GGUF reader advances through one.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/error.h"
#include "core/gguf_values.h"
#include "core/mapped_file.h"

namespace hy3 {

// What is being read, for the error: "the length of key" + a name that may be empty.
struct Reading {
    const char* what;
    std::string_view name = {};

    std::string text() const { return name.empty() ? what : cat(what, " '", printable(name), "'"); }
};

class Cursor {
  public:
    explicit Cursor(const MappedFile& file) : file_(&file) {}

    uint64_t position() const { return position_; }
    uint64_t remaining() const { return file_->size() - position_; }

    template <typename T>
    T take(const Reading& reading) {
        T value;
        std::memcpy(&value, take_bytes(sizeof(T), reading).data(), sizeof(T));
        return value;
    }

    std::string_view take_bytes(uint64_t n, const Reading& reading) {
        if (n > remaining()) {
            fail(Status::format, file_->path(), ": ", reading.text(), " needs ", n, " bytes at byte ",
                 position_, ", but only ", remaining(),
                 " are left. The file is incomplete or damaged: download it again.");
        }
        const char* at = reinterpret_cast<const char*>(file_->data()) + position_;
        position_ += n;
        return {at, static_cast<size_t>(n)};
    }

    // Throws unless `count` things of at least `each` bytes can follow; asked before anything is allocated
    // for them.
    void expect(uint64_t count, uint64_t each, const Reading& reading) const {
        if (count > remaining() / each) {
            fail(Status::format, file_->path(), ": ", reading.text(), " claims ", count, " entries, but the ",
                 remaining(), " bytes left hold at most ", remaining() / each,
                 ". The file is incomplete or damaged: download it again.");
        }
    }

  private:
    const MappedFile* file_;
    uint64_t position_ = 0;
};

}  // namespace hy3
