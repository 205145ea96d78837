// Kernels for any 64-bit Arm processor.
#include <arm_neon.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace neon {
namespace {

#include "cpu/simd_neon.h"

#include "cpu/dot_neon_smull.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace neon

extern const Kernels neon_kernels;
constinit const Kernels neon_kernels = neon::make_table("neon", always);

}  // namespace hy3::cpu
