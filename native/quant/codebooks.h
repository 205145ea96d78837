// The constant tables behind the IQ and MXFP4 formats, defined in codebooks.cpp, which
// tools/gen_iq_codebooks.py generates from the `gguf` package. Plain bytes, 64-byte aligned, so that kernels
// can load and gather them.
#pragma once

#include <cstdint>

namespace hy3 {

// Magnitudes of 8 (or 4) neighbouring elements by code index.
extern const uint8_t iq2xxs_grid[256][8];    // 8, 25, 43
extern const uint8_t iq2xs_grid[512][8];     // 8, 25, 43
extern const uint8_t iq2s_grid[1024][8];     // 8, 25, 43
extern const uint8_t iq3xxs_grid[256][4];    // 4, 12, 20, 28, 36, 44, 52, 62
extern const uint8_t iq3s_grid[512][4];      // 1, 3, ..., 15
extern const int8_t iq1s_grid[2048][8];      // -1, 0, 1; also IQ1_M
extern const uint8_t iq1s_eighths[2048][8];  // 8 x + 17 of the same: with a delta of 1/8, in eighths, and 16

// 7-bit index -> sign bits of 8 elements, bit set = negative; the eighth bit makes the count of set bits
// even.
extern const uint8_t ksigns[128];

extern const int8_t kvalues_iq4nl[16];  // ascending, -127 .. 113
extern const int8_t kvalues_mxfp4[16];  // e2m1 values doubled: 0 1 2 3 4 6 8 12, then the negatives

}  // namespace hy3
