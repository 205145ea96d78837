// What isa_*.cpp include before they open their namespaces: declarations only. A function defined here could
// be compiled with one file's instruction set and linked into another's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"

namespace hy3::cpu {

// Which bit of a word each of 64 bytes depends on: `bit`, one of eight, of byte `byte`.
struct BitChoice {
    alignas(64) uint8_t byte[64];
    alignas(64) uint8_t bit[64];
};

}  // namespace hy3::cpu
