// Internal to native/quant: the functions behind dequantize() and quantize(), one pair a type.
//
// Readers: `blocks` consecutive blocks at src -> blocks * block-size floats.
// Writers: one row of n floats (a multiple of the block size, all finite and at most `limit` in magnitude) ->
// its blocks. `importance` is float[n], finite and not negative, or nullptr.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace hy3 {

struct Codec {
    Type type;
    void (*read)(const void* src, float* dst, int64_t blocks);
    void (*write)(const float* src, void* dst, int64_t n, const float* importance);  // nullptr: read only
    float limit;  // largest magnitude that the writer can store, up to clipping of less than one step
};

extern const Codec kFloatCodecs[3];   // float.cpp
extern const Codec kLegacyCodecs[6];  // legacy.cpp
extern const Codec kKCodecs[5];       // kquants.cpp
extern const Codec kIqCodecs[7];      // iquants.cpp
extern const Codec kIq4Codecs[2];     // iq4.cpp
extern const Codec kMxfp4Codecs[1];   // mxfp4.cpp

inline constexpr float kF16Max = 65504.0f;

}  // namespace hy3
