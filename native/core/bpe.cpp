#include "core/bpe.h"

#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/unicode.h"

namespace hy3 {
namespace {

// GPT-2's table: printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 and
// following, in order.
constexpr bool stands_for_itself(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

constexpr std::array<char32_t, 256> make_alphabet() {
    std::array<char32_t, 256> alphabet{};
    char32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) alphabet[byte] = stands_for_itself(byte) ? byte : next++;
    return alphabet;
}

// Byte of each alphabet character; -1: not in the alphabet.
constexpr std::array<int16_t, kAlphabetEnd> make_inverse() {
    std::array<int16_t, kAlphabetEnd> inverse{};
    for (int16_t& entry : inverse) entry = -1;
    constexpr auto alphabet = make_alphabet();
    for (uint32_t byte = 0; byte < 256; ++byte) inverse[alphabet[byte]] = static_cast<int16_t>(byte);
    return inverse;
}

constexpr auto kAlphabet = make_alphabet();
constexpr auto kInverse = make_inverse();

// Above this, trying all splits of one token would take visible time; real vocabularies stay below 300.
constexpr size_t kLongestRebuilt = 1024;

// Mixes all bits of the pair into the low ones, which choose the slot (the finalizer of MurmurHash3).
uint64_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDu;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53u;
    return x ^ x >> 33;
}

uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

bool from_byte_alphabet(std::string_view text, std::string& out) {
    out.clear();
    if (valid_utf8_prefix(text) != text.size()) return false;
    for (size_t at = 0; at < text.size();) {
        const auto [c, length] = decode_utf8(text, at);
        if (c >= kAlphabetEnd || kInverse[c] < 0) return false;
        out.push_back(static_cast<char>(kInverse[c]));
        at += length;
    }
    return true;
}

std::string to_byte_alphabet(std::string_view bytes) {
    std::string out;
    for (const char byte : bytes) append_utf8(out, kAlphabet[static_cast<uint8_t>(byte)]);
    return out;
}

std::vector<std::string> rebuild_merges(std::span<const std::string_view> tokens,
                                        std::span<const int32_t> types) {
    constexpr int32_t kNormal = 1;
    if (!types.empty() && types.size() != tokens.size()) {
        fail(Status::format, "There are ", tokens.size(), " tokens but ", types.size(), " token types. ",
             "Both lists must have one entry per token.");
    }
    std::vector<std::string> pieces(tokens.size());  // as bytes; empty: takes no part
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < tokens.size(); ++id) {
        if (!types.empty() && types[id] != kNormal) continue;
        if (!from_byte_alphabet(tokens[id], pieces[id])) pieces[id].clear();
        if (pieces[id].size() > kLongestRebuilt) {
            fail(Status::unsupported, "Token ", id, " is ", pieces[id].size(),
                 " bytes long. Merges can be rebuilt ", "only for tokens of at most ", kLongestRebuilt,
                 " bytes.");
        }
        if (!pieces[id].empty()) ids.emplace(pieces[id], id);
    }
    std::vector<std::string> merges;
    std::vector<std::pair<size_t, size_t>> splits;
    for (const std::string& piece : pieces) {
        splits.clear();
        for (size_t cut = 1; cut < piece.size(); ++cut) {
            const auto left = ids.find(std::string_view(piece).substr(0, cut));
            const auto right = ids.find(std::string_view(piece).substr(cut));
            if (left != ids.end() && right != ids.end()) splits.emplace_back(left->second, right->second);
        }
        std::sort(splits.begin(), splits.end());
        for (const auto& [left, right] : splits) merges.push_back(cat(tokens[left], ' ', tokens[right]));
    }
    return merges;
}

Bpe::Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges) : byte_ids_(byte_ids) {
    size_t size = 16;
    while (size < merges.size() * 2) size *= 2;
    slots_.resize(size);
    mask_ = size - 1;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
        uint64_t at = mix(pair) & mask_;
        while (slots_[at].pair != kEmpty) at = (at + 1) & mask_;
        slots_[at] = {pair, static_cast<int32_t>(rank), merges[rank].merged};
    }
}

const Bpe::Slot* Bpe::find(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    for (uint64_t at = mix(pair) & mask_;; at = (at + 1) & mask_) {
        if (slots_[at].pair == pair) return &slots_[at];
        if (slots_[at].pair == kEmpty) return nullptr;
    }
}

// Puts the merge of the symbol at `at` with the one on its right on the heap, if there is one.
void Bpe::offer(Scratch& scratch, int32_t at) const {
    const auto& symbols = scratch.symbols;
    const Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.next < 0) return;
    const Slot* slot = find(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (slot == nullptr) return;
    scratch.heap.push_back(pair_of(slot->rank, at));
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    symbols.clear();
    heap.clear();
    const auto n = static_cast<int32_t>(piece.size());
    for (int32_t i = 0; i < n; ++i) {
        const auto byte = static_cast<uint8_t>(piece[static_cast<size_t>(i)]);
        symbols.push_back({byte_ids_[byte], i - 1, i + 1 < n ? i + 1 : -1});
    }
    for (int32_t i = 0; i < n; ++i) offer(scratch, i);
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        const auto rank = static_cast<int32_t>(heap.back() >> 32);
        const auto at = static_cast<int32_t>(heap.back() & 0xFFFFFFFF);
        heap.pop_back();
        Symbol& left = symbols[static_cast<size_t>(at)];
        if (left.id < 0 || left.next < 0) continue;
        // Either symbol may have changed since the merge was offered; it holds only if the same pair still
        // stands here.
        Symbol& right = symbols[static_cast<size_t>(left.next)];
        const Slot* slot = find(left.id, right.id);
        if (slot == nullptr || slot->rank != rank) continue;
        left.id = slot->merged;
        left.next = right.next;
        right.id = -1;
        if (left.next >= 0) symbols[static_cast<size_t>(left.next)].prev = at;
        if (left.prev >= 0) offer(scratch, left.prev);
        offer(scratch, at);
    }
    for (int32_t i = 0; i >= 0 && i < n; i = symbols[static_cast<size_t>(i)].next) {
        out.push_back(symbols[static_cast<size_t>(i)].id);
    }
}

}  // namespace hy3
