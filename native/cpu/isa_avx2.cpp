// Kernels for x86-64 with AVX2, FMA and F16C.
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avx2 {
namespace {

#include "cpu/simd_avx2.h"

#include "cpu/dot_maddubs.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace avx2

extern const Kernels avx2_kernels;
constinit const Kernels avx2_kernels = avx2::make_table("avx2", has_avx2);

}  // namespace hy3::cpu
