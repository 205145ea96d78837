#include "core/unicode.h"

#include <algorithm>

namespace hy3 {
namespace {

#include "core/unicode_tables.inc"

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

uint8_t byte_at(std::string_view text, size_t at) {
    return static_cast<uint8_t>(text[at]);
}

// Bytes of a character that starts with `lead`; 0: no character does.
size_t sequence_length(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF) return 2;
    if (lead >= 0xE0 && lead <= 0xEF) return 3;
    if (lead >= 0xF0 && lead <= 0xF4) return 4;
    return 0;
}

// Whether `byte` may follow `lead`: excludes overlong forms, surrogates and what lies above U+10FFFF.
// Unicode 16, table 3-7.
bool may_be_second(uint8_t lead, uint8_t byte) {
    switch (lead) {
        case 0xE0:
            return byte >= 0xA0 && byte <= 0xBF;
        case 0xED:
            return byte >= 0x80 && byte <= 0x9F;
        case 0xF0:
            return byte >= 0x90 && byte <= 0xBF;
        case 0xF4:
            return byte >= 0x80 && byte <= 0x8F;
        default:
            return byte >= 0x80 && byte <= 0xBF;
    }
}

// What stands at text[at]: a whole character, or the maximal subpart of one.
struct Sequence {
    size_t length;  // bytes present, at least 1
    bool whole;
    bool cut;  // not whole only because the text ends
};

Sequence sequence_at(std::string_view text, size_t at) {
    const uint8_t lead = byte_at(text, at);
    const size_t wanted = sequence_length(lead);
    if (wanted == 0) return {1, false, false};
    size_t length = 1;
    while (length < wanted && at + length < text.size()) {
        const uint8_t byte = byte_at(text, at + length);
        const bool fits = length == 1 ? may_be_second(lead, byte) : (byte & 0xC0) == 0x80;
        if (!fits) return {length, false, false};
        ++length;
    }
    return {length, length == wanted, length < wanted};
}

}  // namespace

CharClass char_class(char32_t c) {
    return static_cast<CharClass>(kBlocks[kBlockOf[c / 256]][c % 256]);
}

void append_utf8(std::string& out, char32_t c) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (c < 0x80) {
        put(c);
    } else if (c < 0x800) {
        put(0xC0 | c >> 6);
        put(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        put(0xE0 | c >> 12);
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
    } else {
        put(0xF0 | c >> 18);
        put(0x80 | (c >> 12 & 0x3F));
        put(0x80 | (c >> 6 & 0x3F));
        put(0x80 | (c & 0x3F));
    }
}

Decoded decode_utf8(std::string_view text, size_t at) {
    const auto low6 = [&](size_t i) { return static_cast<char32_t>(byte_at(text, at + i) & 0x3F); };
    const char32_t lead = byte_at(text, at);
    if (lead < 0x80) return {lead, 1};
    if (lead < 0xE0) return {(lead & 0x1F) << 6 | low6(1), 2};
    if (lead < 0xF0) return {(lead & 0x0F) << 12 | low6(1) << 6 | low6(2), 3};
    return {(lead & 0x07) << 18 | low6(1) << 12 | low6(2) << 6 | low6(3), 4};
}

size_t valid_utf8_prefix(std::string_view text) {
    size_t at = 0;
    while (at < text.size()) {
        const Sequence sequence = sequence_at(text, at);
        if (!sequence.whole) break;
        at += sequence.length;
    }
    return at;
}

std::string replace_invalid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
        const Sequence sequence = sequence_at(text, at);
        out.append(sequence.whole ? text.substr(at, sequence.length) : kReplacement);
        at += sequence.length;
    }
    return out;
}

size_t unfinished_utf8_tail(std::string_view text) {
    // Only the last lead byte can begin the tail, at most three bytes from the end.
    for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
        const uint8_t byte = byte_at(text, text.size() - back);
        if ((byte & 0xC0) == 0x80) continue;
        const Sequence sequence = sequence_at(text, text.size() - back);
        return sequence.cut && sequence.length == back ? back : 0;
    }
    return 0;
}

}  // namespace hy3
