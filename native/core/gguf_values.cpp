#include "core/gguf_values.h"

#include <limits>
#include <type_traits>

#include "core/error.h"

namespace hy3 {

namespace {

std::optional<int64_t> unsigned_as_integer(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(value);
}

// Calls `visit` with a value of the C++ type that `kind` names, read from element i; bool is passed as bool.
template <typename Visit>
auto visit_element(const GgufArray& array, uint64_t i, Visit visit) -> decltype(visit(uint8_t{})) {
    switch (array.kind) {
        case GgufKind::u8:
            return visit(array.at<uint8_t>(i));
        case GgufKind::i8:
            return visit(array.at<int8_t>(i));
        case GgufKind::u16:
            return visit(array.at<uint16_t>(i));
        case GgufKind::i16:
            return visit(array.at<int16_t>(i));
        case GgufKind::u32:
            return visit(array.at<uint32_t>(i));
        case GgufKind::i32:
            return visit(array.at<int32_t>(i));
        case GgufKind::u64:
            return visit(array.at<uint64_t>(i));
        case GgufKind::i64:
            return visit(array.at<int64_t>(i));
        case GgufKind::f32:
            return visit(array.at<float>(i));
        case GgufKind::f64:
            return visit(array.at<double>(i));
        case GgufKind::boolean:
            return visit(array.at<uint8_t>(i) != 0);
        case GgufKind::string:
        case GgufKind::array:
            break;
    }
    return {};
}

struct ToInteger {
    template <typename T>
    std::optional<int64_t> operator()(const T& value) const {
        if constexpr (std::is_same_v<T, bool>) {
            return std::nullopt;
        } else if constexpr (std::is_same_v<T, uint64_t>) {
            return unsigned_as_integer(value);
        } else if constexpr (std::is_integral_v<T>) {
            return static_cast<int64_t>(value);
        } else {
            return std::nullopt;
        }
    }
};

struct ToNumber {
    template <typename T>
    std::optional<double> operator()(const T& value) const {
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
            return static_cast<double>(value);
        } else {
            return std::nullopt;
        }
    }
};

// Length of the well-formed UTF-8 sequence at the start of `bytes`, 0 when there is none (Unicode 15, table
// 3-7).
size_t utf8_length(std::string_view bytes) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
    const uint8_t first = byte(0);
    if (first < 0x80) return 1;
    size_t length = 0;
    uint8_t low = 0x80,
            high = 0xBF;  // of the second byte: narrower where overlong forms and surrogates would lie
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED) high = 0x9F;
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    }
    if (length == 0 || bytes.size() < length) return 0;
    if (byte(1) < low || byte(1) > high) return 0;
    for (size_t i = 2; i < length; i++) {
        if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
    }
    return length;
}

}  // namespace

const char* kind_name(GgufKind kind) {
    switch (kind) {
        case GgufKind::u8:
            return "u8";
        case GgufKind::i8:
            return "i8";
        case GgufKind::u16:
            return "u16";
        case GgufKind::i16:
            return "i16";
        case GgufKind::u32:
            return "u32";
        case GgufKind::i32:
            return "i32";
        case GgufKind::f32:
            return "f32";
        case GgufKind::boolean:
            return "bool";
        case GgufKind::string:
            return "string";
        case GgufKind::array:
            return "array";
        case GgufKind::u64:
            return "u64";
        case GgufKind::i64:
            return "i64";
        case GgufKind::f64:
            return "f64";
    }
    return "unknown";
}

uint64_t kind_bytes(GgufKind kind) {
    switch (kind) {
        case GgufKind::u8:
        case GgufKind::i8:
        case GgufKind::boolean:
            return 1;
        case GgufKind::u16:
        case GgufKind::i16:
            return 2;
        case GgufKind::u32:
        case GgufKind::i32:
        case GgufKind::f32:
            return 4;
        case GgufKind::u64:
        case GgufKind::i64:
        case GgufKind::f64:
            return 8;
        case GgufKind::string:
        case GgufKind::array:
            break;
    }
    return 0;
}

std::optional<int64_t> GgufArray::integer_at(uint64_t i) const {
    return visit_element(*this, i, [](auto value) { return ToInteger{}(value); });
}

std::optional<double> GgufArray::number_at(uint64_t i) const {
    return visit_element(*this, i, [](auto value) { return ToNumber{}(value); });
}

std::vector<std::string_view> GgufArray::strings() const {
    std::vector<std::string_view> out;
    if (kind != GgufKind::string) return out;
    out.reserve(count);
    const char* at = bytes.data();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length;
        std::memcpy(&length, at, sizeof(length));
        out.emplace_back(at + sizeof(length), length);
        at += sizeof(length) + length;
    }
    return out;
}

std::string describe_kind(const GgufValue& value) {
    if (const auto* array = std::get_if<GgufArray>(&value)) return cat("array of ", kind_name(array->kind));
    return kind_name(kind_of(value));
}

std::optional<int64_t> as_integer(const GgufValue& value) {
    return std::visit(ToInteger{}, value);
}

std::optional<double> as_number(const GgufValue& value) {
    return std::visit(ToNumber{}, value);
}

bool is_utf8(std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t length = utf8_length(bytes);
        if (length == 0) return false;
        bytes.remove_prefix(length);
    }
    return true;
}

std::string printable(std::string_view bytes) {
    constexpr size_t limit = 64;
    static const char hex[] = "0123456789ABCDEF";
    std::string out;
    const bool cut = bytes.size() > limit;
    if (cut) bytes = bytes.substr(0, limit);
    while (!bytes.empty()) {
        const uint8_t first = static_cast<uint8_t>(bytes[0]);
        const size_t length = utf8_length(bytes);
        if (length == 0 || first < 0x20 || first == 0x7F) {
            out += {'\\', 'x', hex[first >> 4], hex[first & 15]};
            bytes.remove_prefix(1);
        } else {
            out += bytes.substr(0, length);
            bytes.remove_prefix(length);
        }
    }
    if (cut) out += "...";
    return out;
}

}  // namespace hy3
