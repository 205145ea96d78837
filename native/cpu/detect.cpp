#include "cpu/detect.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace hy3::cpu {

bool always() {
    return true;
}

#if defined(__x86_64__)
namespace {

// CPUID itself instead of __builtin_cpu_supports(), whose list of names depends on the compiler.
struct Features {
    uint32_t leaf1_c = 0, leaf7_b = 0, leaf7_c = 0, leaf7_1_a = 0;
    uint64_t state = 0;  // registers that the system saves (XCR0)

    Features() {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        if (__get_cpuid(1, &a, &b, &c, &d) == 0) return;
        leaf1_c = c;
        if ((c >> 27 & 1u) == 0) return;  // OSXSAVE
        uint32_t low = 0, high = 0;
        __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        state = low | static_cast<uint64_t>(high) << 32;
        if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
        leaf7_b = b;
        leaf7_c = c;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) leaf7_1_a = a;
    }
};

const Features& features() {
    static const Features found;
    return found;
}

bool all(uint64_t value, uint64_t bits) {
    return (value & bits) == bits;
}

}  // namespace

bool has_avx2() {
    constexpr uint32_t fma_avx_f16c = 1u << 12 | 1u << 28 | 1u << 29;
    return all(features().state, 0x6) && all(features().leaf1_c, fma_avx_f16c) &&
           all(features().leaf7_b, 1u << 5);
}

bool has_avxvnni() {
    return has_avx2() && all(features().leaf7_1_a, 1u << 4);
}

bool has_avxvnni_evex() {
    constexpr uint32_t f_vl = 1u << 16 | 1u << 31;
    return has_avx2() && all(features().state, 0xe6) && all(features().leaf7_b, f_vl) &&
           all(features().leaf7_c, 1u << 11);
}

bool has_avx512() {
    constexpr uint32_t dq_bw = 1u << 17 | 1u << 30;
    return has_avxvnni_evex() && all(features().leaf7_b, dq_bw);
}
#elif defined(__aarch64__)
namespace {

#if defined(__linux__)
bool has_dotprod() {
    return (getauxval(AT_HWCAP) >> 20 & 1) != 0;  // HWCAP_ASIMDDP
}
bool has_i8mm() {
    return (getauxval(AT_HWCAP2) >> 13 & 1) != 0;  // HWCAP2_I8MM
}
#elif defined(__APPLE__)
bool has(const char* feature) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() {
    return has("hw.optional.arm.FEAT_DotProd");
}
bool has_i8mm() {
    return has("hw.optional.arm.FEAT_I8MM");
}
#else
bool has_dotprod() {
    return false;
}
bool has_i8mm() {
    return false;
}
#endif

}  // namespace

bool has_neon_dotprod() {
    return has_dotprod();
}

bool has_neon_i8mm() {
    return has_dotprod() && has_i8mm();
}
#endif

}  // namespace hy3::cpu
