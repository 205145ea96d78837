// Text to token ids and back: byte-level BPE as Hy3's vocabularies define it.
//
// encode: bytes that are no UTF-8 become U+FFFD; special tokens are cut out of the text, at each place the
// longest that starts there; what lies between is split by the pre-tokenizer the file names (pretokenize.h),
// and each piece is merged pair by pair (bpe.h). The ids equal those of the `tokenizers` library for the same
// vocabulary. decode: the tokens' bytes joined; what is no UTF-8 becomes U+FFFD.
//
// Everything a file says is checked by the constructor; a broken file is an Error that names the key and
// entry. All methods are const and keep no state between calls: a Tokenizer may be shared by threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/bpe.h"
#include "core/pretokenize.h"

namespace hy3 {

// Values of tokenizer.ggml.token_type.
enum class TokenType : int32_t {
    normal = 1,
    unknown = 2,       // treated as control
    control = 3,       // marks structure; in text only where the caller allows it
    user_defined = 4,  // text that is always one token
    unused = 5,        // padding row: no text, never produced
    // 6 (a single byte, as SentencePiece has them) does not occur in byte-level BPE and is refused.
};

// What a file's tokenizer.ggml.* keys say. The views need to live only until the Tokenizer is constructed.
struct TokenizerSpec {
    std::string file;  // begins error messages; may be empty
    std::string pre;   // tokenizer.ggml.pre; the known names: pre_tokenizer_names()
    std::vector<std::string_view> tokens;
    std::vector<int32_t> types;            // TokenType of each token; empty: all normal
    std::vector<std::string_view> merges;  // "LEFT RIGHT", the first the most urgent
    int32_t bos = -1;                      // -1: the file has no such key
    int32_t eos = -1;
    int32_t eot = -1;  // end of turn
    int32_t eod = -1;  // end of document
    int32_t pad = -1;
    std::vector<int32_t> more_eos;  // further ids that end generation (tokenizer.ggml.eos_token_ids), if any
};

class Tokenizer {
  public:
    explicit Tokenizer(const TokenizerSpec& spec);
    Tokenizer(const Tokenizer&) = delete;  // views point into bytes_
    Tokenizer& operator=(const Tokenizer&) = delete;

    // special: the text of a control token becomes its id. Without it such text is plain text, as in content
    // that a user wrote. User-defined tokens match either way, as in `tokenizers` and llama.cpp. bos: put the
    // beginning-of-sequence id first; an Error if the vocabulary has none.
    std::vector<int32_t> encode(std::string_view text, bool special = true, bool bos = false) const;

    // Always valid UTF-8. Control tokens are left out unless `special`.
    std::string decode(std::span<const int32_t> ids, bool special = false) const;

    // The bytes a token stands for; they may begin or end inside a UTF-8 character. Empty for an unused row.
    std::string_view piece(int32_t id) const;

    // The token that stands for exactly these bytes (the inverse of piece); a special token before an
    // ordinary one.
    std::optional<int32_t> token_id(std::string_view bytes) const;

    bool is_control(int32_t id) const;
    size_t vocab_size() const { return types_.size(); }

    // -1 where the vocabulary has none.
    int32_t bos_id() const { return bos_; }
    int32_t eos_id() const { return eos_; }
    int32_t pad_id() const { return pad_; }

    // Every id that ends generation: the file's own, and those with the text of an end of turn, sentence or
    // document. Ascending.
    const std::vector<int32_t>& eos_ids() const { return eos_ids_; }

  private:
    struct Match {
        size_t at;
        size_t length;  // 0: no match
        int32_t id;
    };

    // Texts to look for, sorted; the views point into bytes_.
    class TextSet {
      public:
        void add(std::string_view text, int32_t id) { entries_.push_back({text, id}); }
        void sort();  // once, after the last add
        // The first match at or after `from`, the longest there.
        Match find(std::string_view text, size_t from) const;

      private:
        struct Entry {
            std::string_view text;
            int32_t id;
        };
        Match longest_at(std::string_view text, size_t at) const;

        std::vector<Entry> entries_{};
        std::array<size_t, 257> first_{};  // entries that start with byte b: [first_[b], first_[b + 1])
    };

    using Ids = std::unordered_map<std::string_view, int32_t>;

    void take_types(const TokenizerSpec& spec);
    void take_pieces(const TokenizerSpec& spec);
    void take_merges(const TokenizerSpec& spec);
    void take_ends(const TokenizerSpec& spec);
    void encode_plain(std::string_view text, Bpe::Scratch& scratch, std::vector<size_t>& ends,
                      std::vector<int32_t>& out) const;
    TokenType type(int32_t id) const;  // an Error for an id outside the vocabulary

    std::string where_;  // begins error messages: "FILE: "
    PreTokenizer pre_;
    std::string bytes_;            // all pieces, one after the other
    std::vector<size_t> offsets_;  // piece i is bytes_[offsets_[i], offsets_[i + 1])
    std::vector<TokenType> types_;
    Ids ids_;          // by piece
    TextSet special_;  // control and user-defined tokens
    TextSet user_defined_;
    Bpe bpe_;
    int32_t bos_ = -1;
    int32_t eos_ = -1;
    int32_t pad_ = -1;
    std::vector<int32_t> eos_ids_;
};

// Decodes ids as they arrive and holds back the bytes of an unfinished UTF-8 character. All that push and
// finish return, joined, equals Tokenizer::decode of all the ids. Keeps a reference to the tokenizer.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tokenizer, bool special = false)
        : tokenizer_(&tokenizer), special_(special) {}

    std::string push(int32_t id);
    std::string finish();  // what is still held back; the decoder can then be used afresh

  private:
    const Tokenizer* tokenizer_;
    bool special_;
    std::string held_;
};

}  // namespace hy3
