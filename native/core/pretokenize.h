// Splits text into the pieces that are merged on their own: the regular expressions of Hy3's tokenizers,
// written out as code. Each splitter states its expression; characters are classed by unicode.h.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace hy3 {

enum class PreTokenizer {
    hunyuan_dense,  // Hy3, Hunyuan dense, DeepSeek V3: digits in threes, CJK and kana runs, then words
    qwen2,          // Qwen2, Hunyuan A13B: contractions, words, single digits
};

// By the file's name for it (tokenizer.ggml.pre). An unknown name is an Error that lists the known ones,
// after `where`.
PreTokenizer pre_tokenizer_by_name(std::string_view name, std::string_view where);

// Comma-separated, for messages.
std::string pre_tokenizer_names();

// Appends the end offset of each piece of `text`, which must be UTF-8; the last is text.size(). No piece is
// empty.
void pre_tokenize(PreTokenizer kind, std::string_view text, std::vector<size_t>& ends);

}  // namespace hy3
