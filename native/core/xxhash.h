// XXH64 (Yann Collet, xxhash.com), seed 0: the checksum of saved sessions and the fingerprint of models.
// It finds accidents, not forgeries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hy3 {

class Xxh64 {
  public:
    void update(const void* data, size_t size);
    uint64_t digest() const;

  private:
    static constexpr size_t kStripe = 32;

    uint64_t lanes_[4] = {0x60ea27eeadc0b5d6, 0xc2b2ae3d27d4eb4f, 0, 0x61c8864e7a143579};
    uint8_t held_[kStripe] = {};  // the bytes after the last whole stripe
    size_t n_held_ = 0;
    uint64_t total_ = 0;
};

}  // namespace hy3
