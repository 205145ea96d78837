// The kernels of isa_avxvnni.cpp for processors that have VNNI as part of AVX-512 only. There the AVX-512
// kernels are preferred; these are for testing.
#include <immintrin.h>

#include "cpu/isa.h"

namespace hy3::cpu {
namespace avxvnni_evex {
namespace {

#include "cpu/simd_avx2.h"

#include "cpu/dot_vnni.h"

#include "cpu/generic/table.h"

}  // namespace
}  // namespace avxvnni_evex

extern const Kernels avxvnni_evex_kernels;
constinit const Kernels avxvnni_evex_kernels = avxvnni_evex::make_table("avxvnni_evex", has_avxvnni_evex);

}  // namespace hy3::cpu
