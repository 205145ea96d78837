// Builds the header of a GGUF v3 file and says where each tensor's bytes belong; the caller writes those
// bytes.
//
//   GgufHeader header;
//   header.add("general.architecture", std::string_view("hy_v3"));
//   header.add_tensor("token_embd.weight", Type::Q8_0, {2048, 120832});
//   file.write(header.bytes());                       // ends aligned: the data section begins here
//   file.write_at(header.bytes().size() + header.offset(0), ...);
//
// Keys and tensors keep the order of the calls. Wrong use (a duplicate key or name, a row the block size does
// not divide) is a Status::invalid_argument error that names the key or tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/gguf.h"

namespace hy3 {

class GgufHeader {
  public:
    // Power of two from 8 to max_alignment; general.alignment is written when it is not the default 32.
    explicit GgufHeader(uint32_t alignment = 32);

    // The views inside `value` need only live through the call. A value read from another file can be passed
    // on as it is, arrays included.
    void add(std::string_view key, const GgufValue& value);
    void add_strings(std::string_view key, const std::vector<std::string_view>& values);
    // `count` little-endian elements of a fixed-size kind at `data`.
    void add_numbers(std::string_view key, GgufKind kind, const void* data, uint64_t count);

    // Returns the tensor's index.
    size_t add_tensor(std::string_view name, Type type, const Shape& shape);

    size_t n_tensors() const { return tensors_.size(); }
    uint64_t offset(size_t tensor) const {
        return tensors_[tensor].offset;
    }  // from the start of the data section
    uint64_t nbytes(size_t tensor) const { return tensors_[tensor].nbytes; }
    uint64_t data_bytes() const {
        return data_bytes_;
    }  // of the data section; each tensor padded to the alignment
    uint64_t file_bytes() const { return bytes().size() + data_bytes_; }

    // Everything before the data section, padded to the alignment.
    std::string bytes() const;

  private:
    struct Tensor {
        std::string name;
        Type type;
        Shape shape;
        uint64_t offset;
        uint64_t nbytes;
    };

    void begin_key(std::string_view key, GgufKind kind);

    uint32_t alignment_;
    std::string metadata_;  // encoded key-value pairs
    uint64_t n_keys_ = 0;
    std::unordered_set<std::string> names_;  // keys and tensor names, the latter with a '\0' before them
    std::vector<Tensor> tensors_;
    uint64_t data_bytes_ = 0;
};

// Bytes of a tensor; the same checks as GgufHeader::add_tensor.
uint64_t tensor_bytes(std::string_view name, Type type, const Shape& shape);

// Groups consecutive tensors of `nbytes` bytes each into files of at most `max_bytes` of tensor data (padding
// included; a tensor larger than that gets a file of its own). Returns the index of each file's first tensor:
// one file when all fit. Status::invalid_argument when more than max_splits files would be needed.
std::vector<size_t> plan_splits(const std::vector<uint64_t>& nbytes, uint64_t max_bytes,
                                uint32_t alignment = 32);

// The keys of file `no` (from 0) of `count`, of the types llama.cpp writes: split.no and split.count u16,
// split.tensors.count i32. The first file carries all other keys as well, the rest only these.
void add_split_keys(GgufHeader& header, uint32_t no, uint32_t count, uint64_t n_tensors);

// "DIR/NAME-00001-of-00003.gguf" of "DIR/NAME.gguf" (or of a bare "DIR/NAME"), `no` from 0.
std::string split_path(const std::string& path, uint32_t no, uint32_t count);

}  // namespace hy3
