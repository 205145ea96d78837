// Byte-pair encoding of one piece of text: starts from single bytes and, as long as any adjacent pair has a
// merge, applies the most urgent (lowest rank), the leftmost of equals. Source of the rule: Sennrich et al.
// 2016; of the byte alphabet: GPT-2's bytes_to_unicode.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hy3 {

// GPT-2 writes each byte as a printable character, so that vocabularies are plain text. From it returns false
// where `text` has a character outside that alphabet (or is no UTF-8); `out` is then unspecified.
bool from_byte_alphabet(std::string_view text, std::string& out);
std::string to_byte_alphabet(std::string_view bytes);

// Merges for a vocabulary that came without: any two tokens whose concatenation is a token, ordered by that
// token's id ("merge the adjacent pair whose concatenation has the lowest id"), then by the ids of left and
// right. Tokens that `types` does not call normal take no part; empty types: all are normal. Returned as the
// file format has them, "LEFT RIGHT". An Error for a token of more than 1024 bytes.
std::vector<std::string> rebuild_merges(std::span<const std::string_view> tokens,
                                        std::span<const int32_t> types);

class Bpe {
  public:
    struct Merge {
        int32_t left, right, merged;
    };

    Bpe() = default;
    // byte_ids: token of each single byte, -1 where there is none. merges: by rank. No pair may occur twice.
    Bpe(const std::array<int32_t, 256>& byte_ids, std::span<const Merge> merges);

    // What encode needs besides its arguments; reused between pieces to save allocations.
    struct Symbol {
        int32_t id;  // -1: merged into the one on its left
        int32_t prev, next;
    };
    struct Scratch {
        std::vector<Symbol> symbols{};
        std::vector<uint64_t>
            heap{};  // possible merges: rank << 32 | position of the left symbol, lowest on top
    };

    // Appends the ids of `piece` (less than 2^31 bytes, each with a token). n log n in its length.
    void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const;

  private:
    // Open addressing, at most half full; looked up once per adjacent pair.
    struct Slot {
        uint64_t pair = kEmpty;
        int32_t rank = 0;
        int32_t merged = 0;
    };
    static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair of ids: they are not negative

    const Slot* find(int32_t left, int32_t right) const;
    void offer(Scratch& scratch, int32_t at) const;

    std::array<int32_t, 256> byte_ids_{};
    std::vector<Slot> slots_{};
    uint64_t mask_ = 0;
};

}  // namespace hy3
