// The CPU backend: computes on the blocks in place, with int8 activations for quantized weights and float32
// ones for float weights, on a pool of threads, with kernels for the machine's instruction set.
#pragma once

#include <memory>

#include "core/backend.h"

namespace hy3 {

// threads 0: one per physical core. Error(invalid_argument) when HY3_ISA names an instruction set that cannot
// run.
std::unique_ptr<Backend> make_cpu_backend(const Config& config, int threads);

}  // namespace hy3
