// UTF-8 and the classes of Unicode characters, as far as the tokenizer needs them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hy3 {

// General categories, plus whitespace, with which none of them overlaps. Unicode 16; see
// tools/gen_unicode_tables.py.
enum class CharClass : uint8_t { other = 0, letter, mark, number, punctuation, symbol, whitespace };

CharClass char_class(char32_t c);

// Appends c, which must be a code point below 0x110000, as UTF-8.
void append_utf8(std::string& out, char32_t c);

struct Decoded {
    char32_t c;
    size_t length;  // bytes
};

// The character at text[at]; the text must be UTF-8 and `at` the start of a character.
Decoded decode_utf8(std::string_view text, size_t at);

// Length of the UTF-8 prefix of `text`; text.size() if all of it is UTF-8.
size_t valid_utf8_prefix(std::string_view text);

// Each maximal subpart that is no UTF-8 becomes one U+FFFD: Unicode 16, chapter 3, "U+FFFD Substitution of
// Maximal Subparts"; the same as Python's errors="replace".
std::string replace_invalid_utf8(std::string_view text);

// How many bytes at the end of `text` begin a character that further bytes could complete: 0 to 3.
size_t unfinished_utf8_tail(std::string_view text);

}  // namespace hy3
