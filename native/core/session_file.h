// The file of a saved session (Session::save and load). Little-endian; docs/formats.md describes it too.
//
//   header          SessionFileHeader
//   jumps           n_jumps x (u64 index of the first token after it, u64 sum of the jumps so far)
//   tokens          n_tokens x i32
//   states          n_states x (hidden) f32: post-norm states of the last positions
//   extra           the caller's bytes
//   pages           as KvLayout has them; zeros in place of positions that are not in use. (The MTP layer's
//                   rows of the last n_states positions are not: they wait for the next tokens.)
//   checksum        u64: XXH64 of all before
//
// The file must have exactly the size that follows from its header, so that nothing is allocated for what a
// damaged or hostile header claims.
#pragma once

#include <cstdint>

namespace hy3 {

inline constexpr char session_file_magic[8] = {'H', 'Y', '3', 'S', 'T', 'A', 'T', 'E'};
inline constexpr uint32_t session_file_version = 1;

struct SessionFileHeader {
    char magic[8];
    uint32_t version;
    uint32_t kv_type;
    uint32_t n_layers;  // in the cache: the MTP layer included when its cache is kept
    uint32_t n_kv_heads;
    uint32_t head_dim;
    uint32_t page_size;  // positions
    uint32_t mtp;        // 1: the MTP layer's cache is kept
    uint32_t n_states;   // 0: not known
    char backend[16];    // its name, then zeros
    uint64_t fingerprint;
    uint64_t page_bytes;
    uint64_t n_tokens;
    uint64_t n_jumps;
    uint64_t n_extra;
};
static_assert(sizeof(SessionFileHeader) == 96);

}  // namespace hy3
