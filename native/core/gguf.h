// Reader of GGUF files (v2 and v3, little-endian), single or split, for models and for tools.
//
//   auto file = Gguf::open("model.gguf");
//   uint32_t layers = file->get_u32("hy_v3.block_count");
//   const TensorInfo* embed = file->tensor("token_embd.weight");   // embed->data: the bytes, in place
//
// open() checks every count, length, type, shape, offset and string before it is used, so that whatever
// follows may trust them; what a file is wrong about is a Status::format error that names the file, the key
// or tensor, and why. Nothing is allocated in proportion to a number that the file merely claims: the tables
// stay below twice the file's size plus 1 MiB, whatever is in it (see max_tensors, max_keys). Names, strings
// and arrays are views into the file, valid while the Gguf lives.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf_values.h"
#include "core/mapped_file.h"
#include "quant/types.h"

namespace hy3 {

// Where the tables could outgrow the file: an entry of the key table is 52 bytes for at least 14 in the file,
// one of the tensor table 92 for at least 41. Real files have under 100 keys and under 2,000 tensors; the
// original hy3 engine, with a tensor per expert, has 47,000.
inline constexpr uint64_t max_keys = 4096;
inline constexpr uint64_t max_tensors = 80000;
inline constexpr uint64_t max_name_bytes = 65535;  // a key; the specification's limit
inline constexpr uint64_t max_tensor_name_bytes = 255;
inline constexpr uint32_t max_array_depth = 4;
inline constexpr uint32_t max_dims = 4;
inline constexpr uint32_t max_alignment = 1u << 20;
inline constexpr uint32_t max_splits = 1000;

// Dimensions in ggml's order: [0] is the contiguous one, the row length; [1] the number of rows; [2] experts.
class Shape {
  public:
    Shape() = default;
    Shape(const uint64_t* dims, uint32_t n);  // Status::invalid_argument when n > max_dims
    Shape(std::initializer_list<uint64_t> dims) : Shape(dims.begin(), static_cast<uint32_t>(dims.size())) {}

    uint32_t size() const { return n_; }
    uint64_t operator[](uint32_t i) const { return dims_[i]; }
    const uint64_t* begin() const { return dims_.data(); }
    const uint64_t* end() const { return dims_.data() + n_; }

    uint64_t row_length() const { return dims_[0]; }
    uint64_t rows() const { return dims_[1] * dims_[2] * dims_[3]; }
    uint64_t elements() const { return dims_[0] * rows(); }  // a tensor's: the reader has checked the product
    bool operator==(const Shape&) const = default;
    std::string text() const;  // "[256, 64]"

  private:
    std::array<uint64_t, max_dims> dims_{1, 1, 1, 1};
    uint32_t n_ = 0;
};

struct TensorInfo {
    std::string_view name;
    Shape shape;
    uint64_t nbytes = 0;
    uint64_t offset = 0;  // in bytes from the start of its file
    const uint8_t* data = nullptr;
    Type type{};
    uint32_t file = 0;  // index into Gguf::paths()
};

struct KeyValue {
    std::string_view key;
    GgufValue value;
};

// The original hy3 engine wrote GGUF with a tensor per expert and 36-byte Q8_0 blocks (float32 scale); such
// files are for `convert` and `inspect` only. Their Q8_0 tensors carry Type::Q8_0_HY3.
enum class Dialect { standard, hy3_original };

class Gguf {
  public:
    // Of a split model, give the first file; the others are found beside it by name.
    static std::shared_ptr<const Gguf> open(const std::string& path, bool use_mmap = true);

    uint32_t version() const { return version_; }
    uint32_t alignment() const { return alignment_; }
    Dialect dialect() const { return dialect_; }
    const std::vector<std::string>& paths() const { return paths_; }
    const std::string& path() const { return paths_[0]; }
    uint64_t file_bytes() const;  // of all the files

    // In file order; of a split model, the first file's.
    const std::vector<KeyValue>& metadata() const { return metadata_; }
    const GgufValue* find(std::string_view key) const;  // null when absent
    bool has(std::string_view key) const { return find(key) != nullptr; }

    // Typed access. A missing key, a value of another sort, and a value out of range are Status::format
    // errors that name the file, the key, what was wanted and what was found. Integers of any width are
    // accepted where they fit, and integers where a float is wanted. The _or forms return `otherwise` only
    // when the key is absent.
    uint32_t get_u32(std::string_view key) const;
    uint64_t get_u64(std::string_view key) const;
    int64_t get_i64(std::string_view key) const;
    float get_f32(std::string_view key) const;  // finite
    bool get_bool(std::string_view key) const;
    std::string_view get_string(std::string_view key) const;
    uint32_t get_u32_or(std::string_view key, uint32_t otherwise) const;
    uint64_t get_u64_or(std::string_view key, uint64_t otherwise) const;
    float get_f32_or(std::string_view key, float otherwise) const;
    bool get_bool_or(std::string_view key, bool otherwise) const;
    std::string_view get_string_or(std::string_view key, std::string_view otherwise) const;

    // An array, whole or converted. Check `count` against something real before converting: a u8 array grows
    // fourfold as u32.
    const GgufArray& get_array(std::string_view key) const;
    std::vector<std::string_view> get_strings(std::string_view key) const;
    std::vector<uint32_t> get_u32s(std::string_view key) const;
    std::vector<int32_t> get_i32s(std::string_view key) const;
    std::vector<float> get_f32s(std::string_view key) const;
    // A scalar repeated n times, or an array of exactly n: how llama.cpp writes what may differ from layer to
    // layer.
    std::vector<uint32_t> get_u32_per_layer(std::string_view key, uint32_t n) const;

    // In file order, the first file's first.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    const TensorInfo* tensor(std::string_view name) const;  // null when absent

    // Pins all files in memory; false when the system refuses.
    bool lock() const;

  private:
    friend class GgufReader;
    Gguf() = default;

    const GgufValue& require(std::string_view key) const;
    [[noreturn]] void wrong_value(std::string_view key, const char* wanted, const GgufValue& found) const;

    std::vector<std::shared_ptr<MappedFile>> files_;
    std::vector<std::string> paths_;
    std::vector<KeyValue> metadata_;
    std::vector<TensorInfo> tensors_;
    std::vector<uint32_t> keys_by_name_;     // indices into metadata_, sorted by key
    std::vector<uint32_t> tensors_by_name_;  // indices into tensors_, sorted by name
    uint32_t version_ = 0;
    uint32_t alignment_ = 0;
    Dialect dialect_ = Dialect::standard;
};

}  // namespace hy3
