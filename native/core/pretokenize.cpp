#include "core/pretokenize.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/unicode.h"

namespace hy3 {
namespace {

struct Named {
    std::string_view name;
    PreTokenizer kind;
};

constexpr std::array kNames = {
    Named{"hunyuan-dense", PreTokenizer::hunyuan_dense},
    Named{"deepseek-v3", PreTokenizer::hunyuan_dense},
    Named{"hy_v4", PreTokenizer::hunyuan_dense},
    Named{"joyai-llm", PreTokenizer::hunyuan_dense},
    Named{"hunyuan", PreTokenizer::qwen2},
    Named{"qwen2", PreTokenizer::qwen2},
};

// One character of the text, with what the expressions ask of it.
struct Char {
    char32_t c = 0;
    size_t length = 0;  // 0: past the end
    CharClass cls = CharClass::other;

    bool exists() const { return length > 0; }
    bool is(CharClass a) const { return exists() && cls == a; }
    bool is_newline() const { return c == '\r' || c == '\n'; }
    bool is_space() const { return is(CharClass::whitespace); }
    bool is_letter() const { return is(CharClass::letter); }
    bool is_letter_or_mark() const { return is(CharClass::letter) || is(CharClass::mark); }
    bool is_number() const { return is(CharClass::number); }
    bool is_punctuation_or_symbol() const { return is(CharClass::punctuation) || is(CharClass::symbol); }
    bool is_ascii_letter() const { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
    bool is_ascii_punctuation() const { return c < 0x80 && is_punctuation_or_symbol(); }
    bool is_han_or_kana() const {  // [一-龥぀-ゟ゠-ヿ]
        return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
    }
};

Char char_at(std::string_view text, size_t at) {
    if (at >= text.size()) return {};
    const auto [c, length] = decode_utf8(text, at);
    return {c, length, char_class(c)};
}

// End of the run of characters from `at` on that satisfy `belongs`.
template <typename Belongs>
size_t run(std::string_view text, size_t at, Belongs belongs) {
    for (Char next = char_at(text, at); next.exists() && std::invoke(belongs, next); next = char_at(text, at))
        at += next.length;
    return at;
}

size_t newlines(std::string_view text, size_t at) {
    return run(text, at, &Char::is_newline);
}

// A matcher returns the end of the match that starts at `at`, or `at` itself for none. This calls
// piece(begin, end) for each match in text[begin, end) and for what lies between matches; the matcher does
// not see beyond the end.
template <typename Matcher, typename Piece>
void split(std::string_view text, size_t begin, size_t end, Matcher match, Piece piece) {
    const std::string_view visible = text.substr(0, end);
    size_t gap = begin;
    for (size_t at = begin; at < end;) {
        const size_t match_end = match(visible, at);
        if (match_end == at) {
            at += decode_utf8(visible, at).length;
            continue;
        }
        if (gap < at) piece(gap, at);
        piece(at, match_end);
        at = gap = match_end;
    }
    if (gap < end) piece(gap, end);
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t match_spaces(std::string_view text, size_t at) {
    size_t after_newline = at;
    size_t last = at;  // start of the last whitespace character
    size_t end = at;
    for (Char next = char_at(text, at); next.is_space(); next = char_at(text, end)) {
        last = end;
        end += next.length;
        if (next.is_newline()) after_newline = end;
    }
    if (after_newline > at) return after_newline;
    // The run leaves its last character to the word that follows, unless nothing follows or it is all there
    // is.
    return end == text.size() || last == at ? end : last;
}

// \p{N}{1,3}
size_t match_digits(std::string_view text, size_t at) {
    for (int count = 0; count < 3; ++count) {
        const Char next = char_at(text, at);
        if (!next.is_number()) break;
        at += next.length;
    }
    return at;
}

// [一-龥぀-ゟ゠-ヿ]+
size_t match_han_or_kana(std::string_view text, size_t at) {
    return run(text, at, &Char::is_han_or_kana);
}

// [!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t match_dense_words(std::string_view text, size_t at) {
    const Char first = char_at(text, at);
    const size_t second_at = at + first.length;
    const Char second = char_at(text, second_at);
    if (first.is_ascii_punctuation() && second.is_ascii_letter()) {
        return run(text, second_at, &Char::is_ascii_letter);
    }
    const bool may_lead = !first.is_newline() && !first.is_letter() && !first.is_punctuation_or_symbol();
    if (first.is_letter_or_mark() || (may_lead && second.is_letter_or_mark())) {
        return run(text, second_at, &Char::is_letter_or_mark);
    }
    if (first.is_punctuation_or_symbol() || (first.c == ' ' && second.is_punctuation_or_symbol())) {
        return newlines(text, run(text, second_at, &Char::is_punctuation_or_symbol));
    }
    return match_spaces(text, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d); U+017F, the long s, is an s when case is ignored.
size_t match_contraction(std::string_view text, size_t at) {
    constexpr std::array<std::string_view, 8> kEndings = {"s", "t", "re", "ve", "m", "ll", "d", "\u017F"};
    if (text[at] != '\'') return at;
    for (const std::string_view ending : kEndings) {
        const std::string_view found = text.substr(at + 1, ending.size());
        const auto same = [](char a, char b) {
            return a == b || (a >= 'A' && a <= 'Z' && a - 'A' + 'a' == b);
        };
        if (std::equal(found.begin(), found.end(), ending.begin(), ending.end(), same)) {
            return at + 1 + ending.size();
        }
    }
    return at;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t match_qwen2(std::string_view text, size_t at) {
    if (const size_t end = match_contraction(text, at); end > at) return end;
    const auto is_other = [](const Char& c) { return !c.is_space() && !c.is_letter() && !c.is_number(); };
    const Char first = char_at(text, at);
    const size_t second_at = at + first.length;
    const Char second = char_at(text, second_at);
    const bool may_lead = !first.is_newline() && !first.is_number();
    if (first.is_letter() || (may_lead && second.is_letter())) return run(text, second_at, &Char::is_letter);
    if (first.is_number()) return second_at;
    if (is_other(first) || (first.c == ' ' && second.exists() && is_other(second))) {
        return newlines(text, run(text, second_at, is_other));
    }
    return match_spaces(text, at);
}

}  // namespace

PreTokenizer pre_tokenizer_by_name(std::string_view name, std::string_view where) {
    for (const Named& known : kNames) {
        if (known.name == name) return known.kind;
    }
    fail(Status::unsupported, where, "tokenizer.ggml.pre is \"", name,
         "\", a pre-tokenizer this engine does not have. ", "It has: ", pre_tokenizer_names(), ".");
}

std::string pre_tokenizer_names() {
    std::string names;
    for (const Named& known : kNames) names.append(names.empty() ? "" : ", ").append(known.name);
    return names;
}

void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<size_t>& ends) {
    const auto keep = [&ends](size_t, size_t end) { ends.push_back(end); };
    if (kind == PreTokenizer::qwen2) {
        split(text, 0, text.size(), match_qwen2, keep);
        return;
    }
    // Three splits one inside the other: each sees only its piece, so no match or lookahead reaches across.
    split(text, 0, text.size(), match_digits, [&](size_t begin, size_t end) {
        split(text, begin, end, match_han_or_kana, [&](size_t inner_begin, size_t inner_end) {
            split(text, inner_begin, inner_end, match_dense_words, keep);
        });
    });
}

}  // namespace hy3
