#include "cpu/kernels.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"

namespace hy3::cpu {

extern const Kernels scalar_kernels;
#if defined(__x86_64__)
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif

bool takes_quantized(Type type) {
    return type != Type::F32 && type != Type::F16 && type != Type::BF16;
}

const std::vector<const Kernels*>& usable_kernels() {
    static const std::vector<const Kernels*> usable = [] {
        std::vector<const Kernels*> out;
#if defined(__x86_64__)
        for (const Kernels* kernels : {&avx512_kernels, &avx2_kernels})
            if (kernels->usable()) out.push_back(kernels);
#endif
        out.push_back(&scalar_kernels);
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
