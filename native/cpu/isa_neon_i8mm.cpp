// Kernels for 64-bit Arm with matrix products of int8: Neoverse V1, Apple M2 and later.
#include <arm_neon.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace neon_i8mm {
namespace {

#include "cpu/simd_neon.h"

#include "cpu/dot_neon_smmla.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace neon_i8mm

extern const Kernels neon_i8mm_kernels;
constinit const Kernels neon_i8mm_kernels = neon_i8mm::make_table("neon_i8mm", has_neon_i8mm);

}  // namespace hy3::cpu
