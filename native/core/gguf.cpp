// Access to an opened GGUF file: look-ups and typed values. Opening is in gguf_reader.cpp.
#include "core/gguf.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace hy3 {

namespace {

std::string text_of(const GgufValue& value) {
    if (const auto integer = as_integer(value)) return cat(*integer);
    if (const auto number = as_number(value)) return cat(*number);
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* string = std::get_if<std::string_view>(&value)) return cat("'", printable(*string), "'");
    return cat(std::get<GgufArray>(value).count, " elements");
}

}  // namespace

Shape::Shape(const uint64_t* dims, uint32_t n) : n_(n) {
    if (n > max_dims) {
        fail(Status::invalid_argument, "a shape of ", n, " dimensions. Tensors have at most ", max_dims, ".");
    }
    std::copy(dims, dims + n, dims_.begin());
}

std::string Shape::text() const {
    std::string out = "[";
    for (uint32_t i = 0; i < n_; i++) out += cat(i ? ", " : "", dims_[i]);
    return out + "]";
}

uint64_t Gguf::file_bytes() const {
    uint64_t total = 0;
    for (const auto& file : files_) total += file->size();
    return total;
}

const GgufValue* Gguf::find(std::string_view key) const {
    const auto less = [&](uint32_t i, std::string_view wanted) { return metadata_[i].key < wanted; };
    const auto at = std::lower_bound(keys_by_name_.begin(), keys_by_name_.end(), key, less);
    if (at == keys_by_name_.end() || metadata_[*at].key != key) return nullptr;
    return &metadata_[*at].value;
}

const TensorInfo* Gguf::tensor(std::string_view name) const {
    const auto less = [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; };
    const auto at = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, less);
    if (at == tensors_by_name_.end() || tensors_[*at].name != name) return nullptr;
    return &tensors_[*at];
}

const GgufValue& Gguf::require(std::string_view key) const {
    const GgufValue* value = find(key);
    if (!value) {
        fail(Status::format, path(), ": key '", key,
             "' is missing. The file is incomplete or of another kind: "
             "convert the model again.");
    }
    return *value;
}

void Gguf::wrong_value(std::string_view key, const char* wanted, const GgufValue& found) const {
    fail(Status::format, path(), ": key '", key, "' should be ", wanted, " but is ", describe_kind(found),
         " (", text_of(found), "). Convert the model again.");
}

uint32_t Gguf::get_u32(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto integer = as_integer(value);
    if (!integer || *integer < 0 || *integer > std::numeric_limits<uint32_t>::max()) {
        wrong_value(key, "an integer from 0 to 4294967295", value);
    }
    return static_cast<uint32_t>(*integer);
}

uint64_t Gguf::get_u64(std::string_view key) const {
    const GgufValue& value = require(key);
    if (const auto* wide = std::get_if<uint64_t>(&value)) return *wide;
    const auto integer = as_integer(value);
    if (!integer || *integer < 0) wrong_value(key, "an integer, 0 or more", value);
    return static_cast<uint64_t>(*integer);
}

int64_t Gguf::get_i64(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto integer = as_integer(value);
    if (!integer) wrong_value(key, "an integer", value);
    return *integer;
}

float Gguf::get_f32(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto number = as_number(value);
    if (!number || !(std::abs(*number) <= std::numeric_limits<float>::max())) {
        wrong_value(key, "a finite number", value);
    }
    return static_cast<float>(*number);
}

bool Gguf::get_bool(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto* flag = std::get_if<bool>(&value);
    if (!flag) wrong_value(key, "a bool", value);
    return *flag;
}

std::string_view Gguf::get_string(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto* string = std::get_if<std::string_view>(&value);
    if (!string) wrong_value(key, "a string", value);
    return *string;
}

uint32_t Gguf::get_u32_or(std::string_view key, uint32_t otherwise) const {
    return has(key) ? get_u32(key) : otherwise;
}

uint64_t Gguf::get_u64_or(std::string_view key, uint64_t otherwise) const {
    return has(key) ? get_u64(key) : otherwise;
}

float Gguf::get_f32_or(std::string_view key, float otherwise) const {
    return has(key) ? get_f32(key) : otherwise;
}

bool Gguf::get_bool_or(std::string_view key, bool otherwise) const {
    return has(key) ? get_bool(key) : otherwise;
}

std::string_view Gguf::get_string_or(std::string_view key, std::string_view otherwise) const {
    return has(key) ? get_string(key) : otherwise;
}

const GgufArray& Gguf::get_array(std::string_view key) const {
    const GgufValue& value = require(key);
    const auto* array = std::get_if<GgufArray>(&value);
    if (!array) wrong_value(key, "an array", value);
    return *array;
}

std::vector<std::string_view> Gguf::get_strings(std::string_view key) const {
    const GgufArray& array = get_array(key);
    if (array.kind != GgufKind::string) wrong_value(key, "an array of strings", array);
    return array.strings();
}

namespace {

// All elements through `convert`; empty as soon as one does not convert.
template <typename T, typename Convert>
std::optional<std::vector<T>> convert_all(const GgufArray& array, Convert convert) {
    std::vector<T> out;
    out.reserve(kind_bytes(array.kind) ? array.count : 0);
    for (uint64_t i = 0; i < array.count; i++) {
        const std::optional<T> element = convert(i);
        if (!element) return std::nullopt;
        out.push_back(*element);
    }
    return out;
}

template <typename T>
std::optional<std::vector<T>> integers(const GgufArray& array) {
    return convert_all<T>(array, [&](uint64_t i) -> std::optional<T> {
        const auto value = array.integer_at(i);
        if (!value || *value < std::numeric_limits<T>::min() || *value > std::numeric_limits<T>::max()) {
            return std::nullopt;
        }
        return static_cast<T>(*value);
    });
}

}  // namespace

std::vector<uint32_t> Gguf::get_u32s(std::string_view key) const {
    const GgufArray& array = get_array(key);
    auto values = integers<uint32_t>(array);
    if (!values) wrong_value(key, "an array of integers from 0 to 4294967295", array);
    return std::move(*values);
}

std::vector<int32_t> Gguf::get_i32s(std::string_view key) const {
    const GgufArray& array = get_array(key);
    auto values = integers<int32_t>(array);
    if (!values) wrong_value(key, "an array of 32-bit integers", array);
    return std::move(*values);
}

std::vector<float> Gguf::get_f32s(std::string_view key) const {
    const GgufArray& array = get_array(key);
    auto values = convert_all<float>(array, [&](uint64_t i) -> std::optional<float> {
        const auto value = array.number_at(i);
        if (!value || !(std::abs(*value) <= std::numeric_limits<float>::max())) return std::nullopt;
        return static_cast<float>(*value);
    });
    if (!values) wrong_value(key, "an array of finite numbers", array);
    return std::move(*values);
}

std::vector<uint32_t> Gguf::get_u32_per_layer(std::string_view key, uint32_t n) const {
    const GgufValue& value = require(key);
    const auto* array = std::get_if<GgufArray>(&value);
    if (!array) return std::vector<uint32_t>(n, get_u32(key));
    if (array->count != n) {
        fail(Status::format, path(), ": key '", key, "' has ", array->count, " elements for ", n,
             " layers. Convert the model again.");
    }
    return get_u32s(key);
}

bool Gguf::lock() const {
    bool all = true;
    for (const auto& file : files_) all = file->lock() && all;
    return all;
}

}  // namespace hy3
