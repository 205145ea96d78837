#include "core/xxhash.h"

#include <algorithm>
#include <bit>

namespace hy3 {
namespace {

constexpr uint64_t prime1 = 0x9e3779b185ebca87, prime2 = 0xc2b2ae3d27d4eb4f, prime3 = 0x165667b19e3779f9,
                   prime4 = 0x85ebca77c2b2ae63, prime5 = 0x27d4eb2f165667c5;

template <typename T>
T read(const uint8_t* at) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

uint64_t round(uint64_t lane, uint64_t input) {
    return std::rotl(lane + input * prime2, 31) * prime1;
}

}  // namespace

void Xxh64::update(const void* data, size_t size) {
    const auto* at = static_cast<const uint8_t*>(data);
    total_ += size;
    while (size > 0) {
        const bool whole = n_held_ == 0 && size >= kStripe;
        const uint8_t* stripe = at;
        size_t taken = kStripe;
        if (!whole) {
            taken = std::min(size, kStripe - n_held_);
            std::memcpy(held_ + n_held_, at, taken);
            n_held_ += taken;
            stripe = held_;
        }
        if (whole || n_held_ == kStripe) {
            for (size_t i = 0; i < 4; i++) lanes_[i] = round(lanes_[i], read<uint64_t>(stripe + 8 * i));
            n_held_ = 0;
        }
        at += taken;
        size -= taken;
    }
}

uint64_t Xxh64::digest() const {
    uint64_t hash = prime5;
    if (total_ >= kStripe) {
        hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
               std::rotl(lanes_[3], 18);
        for (const uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * prime1 + prime4;
    }
    hash += total_;
    size_t at = 0;
    for (; at + 8 <= n_held_; at += 8)
        hash = std::rotl(hash ^ round(0, read<uint64_t>(held_ + at)), 27) * prime1 + prime4;
    if (at + 4 <= n_held_) {
        hash = std::rotl(hash ^ read<uint32_t>(held_ + at) * prime1, 23) * prime2 + prime3;
        at += 4;
    }
    for (; at < n_held_; at++) hash = std::rotl(hash ^ held_[at] * prime5, 11) * prime1;
    hash = (hash ^ (hash >> 33)) * prime2;
    hash = (hash ^ (hash >> 29)) * prime3;
    return hash ^ (hash >> 32);
}

}  // namespace hy3
