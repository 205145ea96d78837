// Kernels in plain C++, for any machine and as the measure of the others.

#include "cpu/isa.h"

namespace hy3::cpu {
namespace scalar {
namespace {

#include "cpu/simd_scalar.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace scalar

extern const Kernels scalar_kernels;
constinit const Kernels scalar_kernels = scalar::make_table("scalar", always);

}  // namespace hy3::cpu
