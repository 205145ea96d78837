// Kernels for x86-64 with AVX-512 and VNNI.
#if defined(__x86_64__)
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avx512 {
namespace {

#include "cpu/simd_avx512.h"

#include "cpu/generic/table.h"

bool usable() {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

}  // namespace
}  // namespace avx512

extern const Kernels avx512_kernels;
constinit const Kernels avx512_kernels = avx512::make_table("avx512", avx512::usable);

}  // namespace hy3::cpu

#endif
