// A file written aside, as PATH.partial- and six characters that no other writer has, and put in its place
// when it is whole and on disk: whoever opens PATH sees the old file or the new one. Readable by its owner
// alone.
#pragma once

#include <cstddef>
#include <string>

namespace hy3 {

class OutputFile {
  public:
    explicit OutputFile(const std::string& path);  // Error(io), as do the others
    ~OutputFile();                                 // removes what was not committed
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, size_t size);
    // Brings what was written to the disk. Once in a while, so that commit() does not take long.
    void flush();
    void commit();

  private:
    [[noreturn]] void refuse(const char* what) const;

    std::string path_, partial_;
    int fd_;
};

}  // namespace hy3
