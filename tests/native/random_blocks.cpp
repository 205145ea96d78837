#include "random_blocks.h"

#include <cstddef>
#include <random>

#include "quant/blocks.h"

namespace hy3::test {
namespace {

// Where a block has float16 numbers; -1: none.
struct Halves {
    int scale;
    int min;
};

Halves halves_of(Type type) {
    switch (type) {
        case Type::Q4_1:
        case Type::Q5_1:
        case Type::Q4_K:
        case Type::Q5_K:
            return {0, 2};
        case Type::Q2_K:
            return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
        case Type::Q3_K:
            return {offsetof(BlockQ3_K, d), -1};
        case Type::Q6_K:
            return {offsetof(BlockQ6_K, d), -1};
        case Type::F32:
        case Type::BF16:
        case Type::IQ1_M:
        case Type::MXFP4:
            return {-1, -1};
        default:
            return {0, -1};
    }
}

void put(uint8_t* at, uint32_t word, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = static_cast<uint8_t>(word >> (8 * i));
}

void set_scales(Type type, uint8_t* block, uint32_t random) {
    const Halves halves = halves_of(type);
    const uint32_t half = 0x2c00u | (random & 0x3ffu);
    if (type == Type::F32) put(block, 0x3f800000u | (random & 0x7fffffu), 4);
    if (type == Type::F16) return put(block, 0x3c00u | (random & 0x3ffu), 2);
    if (type == Type::BF16) put(block, 0x3f80u | (random & 0x7fu), 2);
    if (type == Type::MXFP4) block[0] = static_cast<uint8_t>(123u + (random & 1u));
    if (type == Type::IQ1_M)
        for (uint32_t i = 0; i < 4; i++) {
            uint8_t& top = block[offsetof(BlockIQ1_M, scales) + 2 * i + 1];
            top = static_cast<uint8_t>((top & 15u) | (half >> (4 * i) & 15u) << 4);
        }
    if (halves.scale >= 0) put(block + halves.scale, half, 2);
    if (halves.min >= 0) put(block + halves.min, half ^ 0x8000u, 2);
}

}  // namespace

std::vector<uint8_t> random_blocks(Type type, int64_t rows, int64_t cols, uint32_t seed) {
    const TypeInfo& info = type_info(type);
    std::mt19937 random(seed);
    std::vector<uint8_t> out(static_cast<size_t>(rows * cols / info.block) * info.bytes);
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
    for (size_t at = 0; at < out.size(); at += info.bytes)
        set_scales(type, out.data() + at, static_cast<uint32_t>(random()));
    return out;
}

}  // namespace hy3::test
