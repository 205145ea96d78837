#include "cpu/kernels.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace hy3::cpu {

// HY3_ISA_*: defined by the build for what the compiler and the target have.
extern const Kernels avx512_kernels;
extern const Kernels avxvnni_kernels;
extern const Kernels avxvnni_evex_kernels;
extern const Kernels avx2_kernels;
extern const Kernels neon_i8mm_kernels;
extern const Kernels neon_dotprod_kernels;
extern const Kernels neon_kernels;
extern const Kernels scalar_kernels;

namespace {

constexpr const Kernels* tables[] = {
#if defined(HY3_ISA_AVX512)
    &avx512_kernels,
#endif
#if defined(HY3_ISA_AVXVNNI)
    &avxvnni_kernels,
#endif
#if defined(HY3_ISA_AVXVNNI_EVEX)
    &avxvnni_evex_kernels,
#endif
#if defined(HY3_ISA_AVX2)
    &avx2_kernels,
#endif
#if defined(HY3_ISA_NEON_I8MM)
    &neon_i8mm_kernels,
#endif
#if defined(HY3_ISA_NEON_DOTPROD)
    &neon_dotprod_kernels,
#endif
#if defined(HY3_ISA_NEON)
    &neon_kernels,
#endif
    &scalar_kernels,
};

}  // namespace

bool takes_quantized(Type type) {
    return type != Type::F32 && type != Type::F16 && type != Type::BF16;
}

const std::vector<const Kernels*>& usable_kernels() {
    static const std::vector<const Kernels*> usable = [] {
        std::vector<const Kernels*> out;
        for (const Kernels* kernels : tables)
            if (kernels->usable()) out.push_back(kernels);
        return out;
    }();
    return usable;
}

const Kernels& select_kernels() {
    const char* wanted = std::getenv("HY3_ISA");
    if (wanted == nullptr || *wanted == '\0') return *usable_kernels().front();
    std::string known;
    for (const Kernels* kernels : usable_kernels()) {
        if (std::string_view(wanted) == kernels->name) return *kernels;
        known += (known.empty() ? "" : ", ") + std::string(kernels->name);
    }
    fail(Status::invalid_argument, "HY3_ISA is \"", wanted, "\", which this machine cannot run. It can run ",
         known, ".");
}

}  // namespace hy3::cpu
