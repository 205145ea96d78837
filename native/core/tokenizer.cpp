#include "core/tokenizer.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/gguf_values.h"
#include "core/unicode.h"

namespace hy3 {
namespace {

constexpr size_t kMaxText = std::numeric_limits<int32_t>::max();

bool is_special(TokenType type) {
    return type == TokenType::control || type == TokenType::unknown || type == TokenType::user_defined;
}

bool is_left_out(TokenType type) {
    return type == TokenType::control || type == TokenType::unknown;
}

// No character's UTF-8 has these bytes, so a vocabulary trained on text may lack them.
bool occurs_in_utf8(size_t byte) {
    return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
}

bool strip_ends(std::string& text, std::string_view prefix, std::string_view suffix) {
    if (text.size() < prefix.size() + suffix.size() || !text.starts_with(prefix) || !text.ends_with(suffix))
        return false;
    text = text.substr(prefix.size(), text.size() - prefix.size() - suffix.size());
    return true;
}

// What a marker is called, whatever its generation: "end_of_sentence" for
// <｜hy_end▁of▁sentence:opensource｜>, <｜hy_end_of_sentence｜> or <|end_of_sentence|>; lower case. Empty if
// `text` is no such marker.
std::string marker_name(std::string_view text) {
    std::string name(text);
    if (!strip_ends(name, "<｜", "｜>") && !strip_ends(name, "<|", "|>")) return "";
    replace_all(name, "▁", "_");
    strip_ends(name, "", ":opensource");
    strip_ends(name, "hy_", "");
    for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return name;
}

constexpr std::array<std::string_view, 2> kBeginNames = {"begin_of_sentence", "bos"};
constexpr std::array<std::string_view, 8> kEndNames = {
    "eos", "eot", "eod", "end_of_sentence", "end_of_turn", "end_of_document", "end_of_text", "endoftext"};

template <size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Tokenizer::Tokenizer(const TokenizerSpec& spec)
    : where_(spec.file.empty() ? "" : spec.file + ": "), pre_(pre_tokenizer_by_name(spec.pre, where_)) {
    take_types(spec);
    take_pieces(spec);
    take_merges(spec);
    take_ends(spec);
}

void Tokenizer::take_types(const TokenizerSpec& spec) {
    const size_t n = spec.tokens.size();
    if (n == 0 || n > kMaxText) {
        fail(Status::format, where_, "tokenizer.ggml.tokens has ", n, " entries. ",
             "A vocabulary has between 1 and ", kMaxText, " tokens.");
    }
    if (!spec.types.empty() && spec.types.size() != n) {
        fail(Status::format, where_, "tokenizer.ggml.token_type has ", spec.types.size(), " entries for ", n,
             " tokens. It must have one for each.");
    }
    types_.assign(n, TokenType::normal);
    for (size_t i = 0; i < spec.types.size(); ++i) {
        const int32_t type = spec.types[i];
        if (type < static_cast<int32_t>(TokenType::normal) ||
            type > static_cast<int32_t>(TokenType::unused)) {
            fail(Status::format, where_, "tokenizer.ggml.token_type[", i, "] is ", type,
                 ". Byte-level BPE has the types 1 to 5.");
        }
        types_[i] = static_cast<TokenType>(type);
    }
}

void Tokenizer::take_pieces(const TokenizerSpec& spec) {
    const size_t n = spec.tokens.size();
    std::string bytes;
    size_t total =
        0;  // upper bound of bytes_, which would otherwise grow to thrice the file's text on the way
    for (const std::string_view text : spec.tokens) total += text.size();
    bytes_.reserve(total);
    offsets_.assign(1, 0);
    offsets_.reserve(n + 1);
    for (size_t i = 0; i < n; ++i) {
        const std::string_view text = spec.tokens[i];
        if (types_[i] == TokenType::normal && from_byte_alphabet(text, bytes)) {
            bytes_.append(bytes);
        } else if (types_[i] != TokenType::unused) {
            bytes_.append(text);
        }
        offsets_.push_back(bytes_.size());
        if (types_[i] != TokenType::unused && text.empty()) {
            fail(Status::format, where_, "tokenizer.ggml.tokens[", i,
                 "] is empty. Only rows of type 5 (unused) may be.");
        }
    }
    ids_.reserve(n);
    for (const bool special : {true, false}) {
        for (size_t i = 0; i < n; ++i) {
            const auto id = static_cast<int32_t>(i);
            if (is_special(types_[i]) != special || types_[i] == TokenType::unused) continue;
            ids_.emplace(piece(id), id);
            if (special) special_.add(piece(id), id);
            if (types_[i] == TokenType::user_defined) user_defined_.add(piece(id), id);
        }
    }
    special_.sort();
    user_defined_.sort();
}

void Tokenizer::take_merges(const TokenizerSpec& spec) {
    const size_t n = spec.tokens.size();
    if (spec.merges.size() > kMaxText) {
        fail(Status::format, where_, "tokenizer.ggml.merges has ", spec.merges.size(),
             " entries, which is absurd.");
    }
    Ids by_text;  // as the vocabulary spells tokens, and merges with them
    by_text.reserve(n);
    bool has_merged_tokens = false;
    for (size_t i = 0; i < n; ++i) {
        if (types_[i] == TokenType::unused) continue;
        const auto id = static_cast<int32_t>(i);
        const auto [it, added] = by_text.emplace(spec.tokens[i], id);
        if (!added) {
            fail(Status::format, where_, "tokenizer.ggml.tokens[", i, "] repeats tokens[", it->second,
                 "], \"", printable(spec.tokens[i]), "\". Each token's text must be its own.");
        }
        if (types_[i] == TokenType::normal && piece(id).size() > 1) has_merged_tokens = true;
    }
    if (has_merged_tokens && spec.merges.empty()) {
        fail(Status::format, where_, "tokenizer.ggml.merges is missing or empty. ",
             "`hy3 convert` rebuilds the merges of a file that lacks them.");
    }
    const auto find = [&by_text](std::string_view text) {
        const auto it = by_text.find(text);
        return it == by_text.end() ? -1 : it->second;
    };
    std::array<int32_t, 256> byte_ids{};
    for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
        const char c = static_cast<char>(byte);
        byte_ids[byte] = find(to_byte_alphabet({&c, 1}));
        if (byte_ids[byte] < 0 && occurs_in_utf8(byte)) {
            fail(Status::format, where_, "tokenizer.ggml.tokens has no token for the byte ", byte,
                 ". A byte-level vocabulary has one for each byte that text can contain.");
        }
    }
    std::vector<Bpe::Merge> merges;
    merges.reserve(spec.merges.size());
    std::unordered_set<uint64_t> seen;
    std::string merged;
    for (size_t i = 0; i < spec.merges.size(); ++i) {
        const std::string_view merge = spec.merges[i];
        const auto bad = [&](const auto&... why) {
            fail(Status::format, where_, "tokenizer.ggml.merges[", i, "], \"", printable(merge), "\", ",
                 why...);
        };
        const size_t space = merge.find(' ', 1);
        if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size()) {
            bad("is no pair. A merge is two tokens with a space between.");
        }
        const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
        merged.assign(left).append(right);
        for (const std::string_view part : {left, right, std::string_view(merged)}) {
            if (find(part) < 0)
                bad("needs \"", printable(part),
                    "\", which is no token. Both parts and the whole must be tokens.");
        }
        merges.push_back({find(left), find(right), find(merged)});
        const uint64_t pair =
            uint64_t{static_cast<uint32_t>(find(left))} << 32 | static_cast<uint32_t>(find(right));
        if (!seen.insert(pair).second) bad("occurs twice. Each merge has one rank.");
    }
    bpe_ = Bpe(byte_ids, merges);
}

void Tokenizer::take_ends(const TokenizerSpec& spec) {
    const auto take = [&](const char* key, int32_t id) {
        if (id < -1 || id >= static_cast<int32_t>(vocab_size())) {
            fail(Status::format, where_, "tokenizer.ggml.", key, " is ", id, ", but the vocabulary has ",
                 vocab_size(), " tokens. It must be the id of one.");
        }
        return id;
    };
    bos_ = take("bos_token_id", spec.bos);
    eos_ = take("eos_token_id", spec.eos);
    pad_ = take("padding_token_id", spec.pad);
    eos_ids_ = {eos_, take("eot_token_id", spec.eot), take("eod_token_id", spec.eod)};
    for (const int32_t id : spec.more_eos) eos_ids_.push_back(take("eos_token_ids", id));
    for (int32_t id = 0; id < static_cast<int32_t>(vocab_size()); ++id) {
        if (!is_special(type(id))) continue;
        const std::string name = marker_name(piece(id));
        if (contains(kEndNames, name)) eos_ids_.push_back(id);
        if (name == "eos" && eos_ < 0) eos_ = id;
        if (contains(kBeginNames, name) && bos_ < 0) bos_ = id;
    }
    std::sort(eos_ids_.begin(), eos_ids_.end());
    eos_ids_.erase(std::unique(eos_ids_.begin(), eos_ids_.end()), eos_ids_.end());
    std::erase(eos_ids_, -1);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool special, bool bos) const {
    if (text.size() > kMaxText / 3) {  // three: an invalid byte becomes three
        fail(Status::invalid_argument, "A text of ", text.size(),
             " bytes is too long to tokenize in one go. ", "Pass at most ", kMaxText / 3, " bytes.");
    }
    std::string repaired;
    if (valid_utf8_prefix(text) != text.size()) {
        repaired = replace_invalid_utf8(text);
        text = repaired;
    }
    std::vector<int32_t> out;
    if (bos && bos_ < 0) {
        fail(Status::invalid_argument, where_, "the vocabulary has no beginning-of-sequence token. ",
             "Encode without bos.");
    }
    if (bos) out.push_back(bos_);
    const TextSet& cuts = special ? special_ : user_defined_;
    Bpe::Scratch scratch;
    std::vector<size_t> ends;
    for (size_t at = 0; at < text.size();) {
        const Match match = cuts.find(text, at);
        encode_plain(text.substr(at, match.at - at), scratch, ends, out);
        if (match.length > 0) out.push_back(match.id);
        at = match.at + match.length;
    }
    return out;
}

void Tokenizer::encode_plain(std::string_view text, Bpe::Scratch& scratch, std::vector<size_t>& ends,
                             std::vector<int32_t>& out) const {
    ends.clear();
    pre_tokenize(pre_, text, ends);
    size_t begin = 0;
    for (const size_t end : ends) {
        bpe_.encode(text.substr(begin, end - begin), scratch, out);
        begin = end;
    }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
    std::string bytes;
    for (const int32_t id : ids) {
        if (special || !is_control(id)) bytes.append(piece(id));
    }
    return replace_invalid_utf8(bytes);
}

TokenType Tokenizer::type(int32_t id) const {
    if (id < 0 || static_cast<size_t>(id) >= types_.size()) {
        fail(Status::invalid_argument, "Token id ", id, " is not in the vocabulary. Ids go from 0 to ",
             types_.size() - 1, ".");
    }
    return types_[static_cast<size_t>(id)];
}

std::string_view Tokenizer::piece(int32_t id) const {
    type(id);
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::optional<int32_t> Tokenizer::token_id(std::string_view bytes) const {
    const auto it = ids_.find(bytes);
    return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

bool Tokenizer::is_control(int32_t id) const {
    return is_left_out(type(id));
}

void Tokenizer::TextSet::sort() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.text < b.text; });
    for (const Entry& entry : entries_) ++first_[static_cast<uint8_t>(entry.text[0]) + size_t{1}];
    for (size_t byte = 1; byte < first_.size(); ++byte) first_[byte] += first_[byte - 1];
}

Tokenizer::Match Tokenizer::TextSet::find(std::string_view text, size_t from) const {
    for (size_t at = from; at < text.size(); ++at) {
        const Match match = longest_at(text, at);
        if (match.length > 0) return match;
    }
    return {text.size(), 0, -1};
}

// Narrows the entries to those that share ever more bytes with the text. The one that ends after those bytes,
// if any, sorts first among them.
Tokenizer::Match Tokenizer::TextSet::longest_at(std::string_view text, size_t at) const {
    const auto lead = static_cast<uint8_t>(text[at]);
    auto low = entries_.begin() + static_cast<ptrdiff_t>(first_[lead]);
    auto high = entries_.begin() + static_cast<ptrdiff_t>(first_[lead + size_t{1}]);
    Match best{at, 0, -1};
    for (size_t shared = 1; low != high; ++shared) {
        if (low->text.size() == shared) {
            best = {at, shared, low->id};
            ++low;
        }
        if (at + shared == text.size()) break;
        const auto byte_of = [shared](const Entry& entry) {
            return static_cast<uint8_t>(entry.text[shared]);
        };
        const auto next = static_cast<uint8_t>(text[at + shared]);
        low = std::partition_point(low, high, [&](const Entry& entry) { return byte_of(entry) < next; });
        high = std::partition_point(low, high, [&](const Entry& entry) { return byte_of(entry) == next; });
    }
    return best;
}

std::string StreamDecoder::push(int32_t id) {
    if (!special_ && tokenizer_->is_control(id)) return "";
    held_.append(tokenizer_->piece(id));
    const size_t ready = held_.size() - unfinished_utf8_tail(held_);
    std::string out = replace_invalid_utf8(std::string_view(held_).substr(0, ready));
    held_.erase(0, ready);
    return out;
}

std::string StreamDecoder::finish() {
    std::string out = replace_invalid_utf8(held_);
    held_.clear();
    return out;
}

}  // namespace hy3
