// Metadata values of a GGUF file, as views into it.
//
// A value owns no memory: strings and arrays point into the file's bytes, so a reader's memory does not grow
// with what a file claims to hold. Whoever keeps a view keeps the Gguf (or, when writing, the source buffer)
// alive. Array elements are not aligned in the file, hence the copies through memcpy.
//
// Source: the GGUF specification (ggml/docs/gguf.md), value types and their numbers.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hy3 {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place: little-endian hosts only");

// The numbers are the file's.
enum class GgufKind : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

// "u8" ... "f64", "bool", "string", "array"; "unknown" for a number that is none of them.
const char* kind_name(GgufKind kind);

// Bytes of one element; 0 for string, array and unknown kinds, whose size is not fixed.
uint64_t kind_bytes(GgufKind kind);

// `count` elements of one kind, encoded back to back in `bytes` as the file has them. The reader has walked
// and checked every element, so the accessors below stay inside `bytes`.
struct GgufArray {
    GgufKind kind = GgufKind::u8;
    uint64_t count = 0;
    std::string_view bytes;

    // Element i of a fixed-size kind; T must be the C++ type of `kind` (bool is read as uint8_t).
    template <typename T>
    T at(uint64_t i) const {
        T value;
        std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        return value;
    }

    // Element i of any numeric kind as a wide integer or a double. Empty when it does not fit or is not of
    // the sort.
    std::optional<int64_t> integer_at(uint64_t i) const;
    std::optional<double> number_at(uint64_t i) const;

    // All elements of an array of strings, in order: 16 bytes each, where the file has at least 8. Empty for
    // other kinds.
    std::vector<std::string_view> strings() const;

    bool operator==(const GgufArray&) const = default;
};

using GgufValue = std::variant<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, float, bool,
                               std::string_view, GgufArray, uint64_t, int64_t, double>;

// The alternatives stand in the order of GgufKind's numbers.
inline GgufKind kind_of(const GgufValue& value) {
    return static_cast<GgufKind>(value.index());
}

// "u32", "string", "array of i32".
std::string describe_kind(const GgufValue& value);

// The value as a wide integer: any integer kind whose value fits. Floats and bools are not integers.
std::optional<int64_t> as_integer(const GgufValue& value);
// The value as a double: f32, f64, and every integer kind (the original hy3 engine wrote rope.freq_base as
// one).
std::optional<double> as_number(const GgufValue& value);

// Whether `bytes` is well-formed UTF-8 (no overlong forms, no surrogates, nothing above U+10FFFF).
bool is_utf8(std::string_view bytes);

// `bytes` made safe to print in an error: at most 64 bytes, control and non-UTF-8 bytes as \xNN.
std::string printable(std::string_view bytes);

}  // namespace hy3
