// Kernels for x86-64 with AVX2, FMA and F16C.
#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avx2 {
namespace {

#include "cpu/simd_avx2.h"

#include "cpu/generic/table.h"

bool usable() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
}

}  // namespace
}  // namespace avx2

extern const Kernels avx2_kernels;
constinit const Kernels avx2_kernels = avx2::make_table("avx2", avx2::usable);

}  // namespace hy3::cpu

#endif
