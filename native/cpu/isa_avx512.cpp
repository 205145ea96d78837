// Kernels for x86-64 with AVX-512 and VNNI.
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avx512 {
namespace {

#include "cpu/simd_avx512.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace avx512

extern const Kernels avx512_kernels;
constinit const Kernels avx512_kernels = avx512::make_table("avx512", has_avx512);

}  // namespace hy3::cpu
