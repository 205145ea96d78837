// Between float32 (and each other) and the block formats: the reference readers and writers of every type.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace hy3 {

// dst[0..n) = the values of n elements stored at src (any alignment). n must be a multiple of the type's
// block. Throws Error(unsupported) for integer types and f64.
void dequantize(Type type, const void* src, float* dst, int64_t n);

// Writes rows x cols float32 values (row-major) as `rows` consecutive rows of `type` at dst.
// `importance`: float32[cols] or nullptr; a column's weight in the squared error that the choice of scales
// minimizes (finite, not negative; a block whose weights are all zero is quantized unweighted). Ignored by
// f32, f16, bf16. Throws Error(unsupported) for a type that can only be read, Error(invalid_argument) for a
// NaN or an infinity in src or a bad importance; the message says row and column and can be prefixed with a
// tensor's name.
void quantize(Type type, const float* src, void* dst, int64_t rows, int64_t cols, const float* importance);

// Converts rows from one type to another on `threads` threads (at least 1); the result does not depend on how
// many. Bytes are copied when the types are equal; float types are checked for NaN and infinity then, too.
// Errors as dequantize and quantize.
void convert_rows(Type src_type, const void* src, Type dst_type, void* dst, int64_t rows, int64_t cols,
                  const float* importance, int threads);

}  // namespace hy3
