// Random weights in any tensor type, for tests and timings of what computes on blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/types.h"

namespace hy3::test {

// `rows` rows of `cols` elements: codes, signs and small scales are random bytes, the float scales of blocks
// lie between 1/16 and 1/8; float weights between 1 and 2.
std::vector<uint8_t> random_blocks(Type type, int64_t rows, int64_t cols, uint32_t seed);

}  // namespace hy3::test
