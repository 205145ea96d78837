// The one list of backends.
#include <unistd.h>

#include "core/backend.h"
#include "core/error.h"
#include "cpu/cpu_backend.h"
#include "cpu/kernels.h"
#include "reference/reference_backend.h"

namespace hy3 {
namespace {

uint64_t physical_memory() {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
}

}  // namespace

std::vector<BackendInfo> available_backends() {
    return {{"cpu", cat("host processor, ", cpu::usable_kernels().front()->name), physical_memory()},
            {"reference", "plain float32 loops, the measure of the others", physical_memory()}};
}

std::unique_ptr<Backend> make_backend(const std::string& name, const Config& config, int threads) {
    if (name == "auto" || name == "cpu") return make_cpu_backend(config, threads);
    if (name == "reference") return make_reference_backend(config);
    fail(Status::invalid_argument, "There is no backend \"", name, "\". Known are auto, cpu and reference.");
}

}  // namespace hy3
