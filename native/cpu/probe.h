// The machine's limits, measured: what the speed of a model is compared with.
#pragma once

#include <cstdint>

#include "core/backend.h"

namespace hy3::cpu {

struct MachineSpeed {
    double read_bytes;  // a second, from memory, by all threads together
    double int8_ops;    // multiplications and additions a second, likewise
};

// The best of five reads of `span` bytes (rounded down to whole tasks), far more than the caches hold, and of
// five runs of int8 products, with the kernels in use. threads 0: one per physical core.
MachineSpeed measure_machine(int threads, int64_t span, AbortCheck& abort);

}  // namespace hy3::cpu
