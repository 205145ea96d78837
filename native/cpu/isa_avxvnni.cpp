// Kernels for x86-64 with AVX-VNNI: Intel Alder Lake and later, AMD Zen 5.
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avxvnni {
namespace {

#include "cpu/simd_avx2.h"

#include "cpu/dot_vnni.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace avxvnni

extern const Kernels avxvnni_kernels;
constinit const Kernels avxvnni_kernels = avxvnni::make_table("avxvnni", has_avxvnni);

}  // namespace hy3::cpu
