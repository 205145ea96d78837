// Inside of Gguf::open: what is known of one file while it is read, and the steps over it.
//   read_part      header and metadata of one file               (gguf_reader.cpp)
//   read_tensors   its tensor table, sizes not yet placed         (gguf_tensors.cpp)
//   place_tensors  dialect, byte ranges, bounds and overlaps      (gguf_tensors.cpp)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/gguf.h"
#include "core/gguf_cursor.h"

namespace hy3 {

// One file. All of a model's parts are opened and their counts checked before the first tensor is read, so
// that the tensor table can be allocated once, at its final size.
struct GgufPart {
    std::shared_ptr<MappedFile> file;
    Cursor cursor;  // after read_part: at the tensor table
    uint32_t version = 0;
    uint32_t alignment = 0;
    uint64_t n_tensors = 0;
    uint64_t data_start = 0;  // byte where the data section begins; set by read_tensors
    std::vector<KeyValue> metadata;
    std::vector<uint32_t> keys_by_name;

    explicit GgufPart(std::shared_ptr<MappedFile> f) : file(std::move(f)), cursor(*file) {}
    const std::string& path() const { return file->path(); }
    const GgufValue* find(std::string_view key) const;
};

GgufPart read_part(const std::string& path, bool use_mmap);

// Appends the part's tensors with `offset` still relative to the data section and `nbytes` and `data` unset.
void read_tensors(GgufPart& part, uint32_t file, std::vector<TensorInfo>& tensors);

// Sets offset, nbytes, data, and Type::Q8_0_HY3 where the dialect demands it; `by_place` is scratch of the
// final size. Returns the dialect.
Dialect place_tensors(const std::vector<GgufPart>& parts, std::vector<TensorInfo>& tensors,
                      std::vector<uint32_t>& by_place);

}  // namespace hy3
