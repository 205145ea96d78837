#include "core/gguf_writer.h"

#include <bit>
#include <cstdio>

#include "core/error.h"

namespace hy3 {

namespace {

// llama.cpp refuses longer names (GGML_MAX_NAME with its final NUL).
constexpr size_t max_written_name = 63;

template <typename T>
void put(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_string(std::string& out, std::string_view text) {
    put(out, static_cast<uint64_t>(text.size()));
    out += text;
}

void check_name(std::string_view name, size_t longest, const char* what) {
    if (name.empty() || name.size() > longest || name.find('\0') != name.npos || !is_utf8(name)) {
        fail(Status::invalid_argument, what, " '", printable(name), "' of ", name.size(),
             " bytes cannot be written. Names are UTF-8 text of 1 to ", longest, " bytes.");
    }
}

uint64_t align_up(uint64_t n, uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

struct EncodeValue {
    std::string& out;

    template <typename T>
    void operator()(const T& value) const {
        put(out, value);
    }
    void operator()(bool value) const { put(out, static_cast<uint8_t>(value)); }
    void operator()(std::string_view value) const { put_string(out, value); }
    void operator()(const GgufArray& array) const {
        put(out, static_cast<uint32_t>(array.kind));
        put(out, array.count);
        out += array.bytes;
    }
};

}  // namespace

GgufHeader::GgufHeader(uint32_t alignment) : alignment_(alignment) {
    if (alignment < 8 || alignment > max_alignment || !std::has_single_bit(alignment)) {
        fail(Status::invalid_argument, "an alignment of ", alignment,
             " cannot be written. Choose a power of two from 8 to ", max_alignment, ".");
    }
    if (alignment != 32) add("general.alignment", alignment);
}

void GgufHeader::begin_key(std::string_view key, GgufKind kind) {
    check_name(key, max_name_bytes, "key");
    if (n_keys_ == max_keys) {
        fail(Status::invalid_argument, "key '", printable(key), "' is one too many. A file holds at most ",
             max_keys, " keys.");
    }
    if (!names_.emplace(key).second) {
        fail(Status::invalid_argument, "key '", key, "' is written twice. Leave one out.");
    }
    n_keys_++;
    put_string(metadata_, key);
    put(metadata_, static_cast<uint32_t>(kind));
}

void GgufHeader::add(std::string_view key, const GgufValue& value) {
    begin_key(key, kind_of(value));
    std::visit(EncodeValue{metadata_}, value);
}

void GgufHeader::add_strings(std::string_view key, const std::vector<std::string_view>& values) {
    begin_key(key, GgufKind::array);
    put(metadata_, static_cast<uint32_t>(GgufKind::string));
    put(metadata_, static_cast<uint64_t>(values.size()));
    for (const std::string_view value : values) put_string(metadata_, value);
}

void GgufHeader::add_numbers(std::string_view key, GgufKind kind, const void* data, uint64_t count) {
    if (kind_bytes(kind) == 0) {
        fail(Status::invalid_argument, "key '", printable(key), "' cannot be an array of ", kind_name(kind),
             " made of numbers. Choose a numeric kind.");
    }
    const std::string_view bytes(static_cast<const char*>(data),
                                 static_cast<size_t>(count * kind_bytes(kind)));
    add(key, GgufArray{kind, count, bytes});
}

size_t GgufHeader::add_tensor(std::string_view name, Type type, const Shape& shape) {
    const uint64_t nbytes = tensor_bytes(name, type, shape);
    if (tensors_.size() == max_tensors) {
        fail(Status::invalid_argument, "tensor '", name, "' is one too many. A file holds at most ",
             max_tensors, " tensors.");
    }
    if (!names_.insert(cat('\0', name)).second) {
        fail(Status::invalid_argument, "tensor '", name, "' is written twice. Leave one out.");
    }
    tensors_.push_back({std::string(name), type, shape, data_bytes_, nbytes});
    data_bytes_ += align_up(nbytes, alignment_);
    return tensors_.size() - 1;
}

std::string GgufHeader::bytes() const {
    std::string out = "GGUF";
    put(out, uint32_t{3});
    put(out, static_cast<uint64_t>(tensors_.size()));
    put(out, n_keys_);
    out += metadata_;
    for (const Tensor& tensor : tensors_) {
        put_string(out, tensor.name);
        put(out, tensor.shape.size());
        for (const uint64_t dim : tensor.shape) put(out, dim);
        put(out, static_cast<uint32_t>(tensor.type));
        put(out, tensor.offset);
    }
    out.resize(align_up(out.size(), alignment_), '\0');
    return out;
}

uint64_t tensor_bytes(std::string_view name, Type type, const Shape& shape) {
    check_name(name, max_written_name, "tensor");
    const TypeInfo& info = type_info(type);
    if (type == Type::Q8_0_HY3) {
        fail(Status::invalid_argument, "tensor '", name, "' cannot be written as ", info.name,
             ", a type of the original hy3 engine only. Convert it to q8_0.");
    }
    uint64_t elements = shape.size() == 0 ? 0 : 1;
    bool overflow = false;
    for (const uint64_t dim : shape) overflow |= __builtin_mul_overflow(elements, dim, &elements);
    if (elements == 0 || overflow || elements >> 60) {
        fail(Status::invalid_argument, "tensor '", name, "' cannot have the shape ", shape.text(),
             ". It needs 1 to 4 dimensions, none of them 0.");
    }
    if (shape.row_length() % info.block != 0) {
        fail(Status::invalid_argument, "tensor '", name, "' has rows of ", shape.row_length(),
             " elements, which the ", info.block, " of a block of ", info.name,
             " do not divide. Choose another type for it.");
    }
    return elements / info.block * info.bytes;
}

std::vector<size_t> plan_splits(const std::vector<uint64_t>& nbytes, uint64_t max_bytes, uint32_t alignment) {
    std::vector<size_t> firsts{0};
    uint64_t filled = 0;
    for (size_t i = 0; i < nbytes.size(); i++) {
        const uint64_t padded = align_up(nbytes[i], alignment);
        if (i > firsts.back() && (padded > max_bytes || filled > max_bytes - padded)) {
            firsts.push_back(i);
            filled = 0;
        }
        filled += padded;
    }
    if (firsts.size() > max_splits) {
        fail(Status::invalid_argument, "files of at most ", max_bytes, " bytes would split the model into ",
             firsts.size(), ". Allow larger files: at most ", max_splits, " are written.");
    }
    return firsts;
}

void add_split_keys(GgufHeader& header, uint32_t no, uint32_t count, uint64_t n_tensors) {
    header.add("split.no", static_cast<uint16_t>(no));
    header.add("split.count", static_cast<uint16_t>(count));
    header.add("split.tensors.count", static_cast<int32_t>(n_tensors));
}

std::string split_path(const std::string& path, uint32_t no, uint32_t count) {
    constexpr std::string_view extension = ".gguf";
    const size_t stem = path.ends_with(extension) ? path.size() - extension.size() : path.size();
    char ending[40];
    std::snprintf(ending, sizeof(ending), "-%05u-of-%05u.gguf", no + 1, count);
    return path.substr(0, stem) + ending;
}

}  // namespace hy3
