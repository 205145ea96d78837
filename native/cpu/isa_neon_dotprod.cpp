// Kernels for 64-bit Arm with dot products: Cortex-A76, Apple M1 and later.
#include <arm_neon.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace neon_dotprod {
namespace {

#include "cpu/simd_neon.h"

#include "cpu/dot_neon_sdot.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace neon_dotprod

extern const Kernels neon_dotprod_kernels;
constinit const Kernels neon_dotprod_kernels = neon_dotprod::make_table("neon_dotprod", has_neon_dotprod);

}  // namespace hy3::cpu
