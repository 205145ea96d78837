// What the processor and the system can run. Compiled for the baseline, unlike the kernels that it is asked
// about.
#pragma once

namespace hy3::cpu {

bool always();

#if defined(__x86_64__)
bool has_avx2();          // with FMA and F16C
bool has_avxvnni();       // and the VEX encoding of VNNI
bool has_avxvnni_evex();  // or its EVEX encoding, of AVX-512
bool has_avx512();        // F, BW, VL, DQ and VNNI
#elif defined(__aarch64__)
bool has_neon_dotprod();
bool has_neon_i8mm();  // and the former
#endif

}  // namespace hy3::cpu
