// What isa_*.cpp include before they open their namespaces: declarations only. A function defined here could
// be compiled with one file's instruction set and linked into another's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/detect.h"
#include "cpu/kernels.h"
#include "quant/blocks.h"
#include "quant/codebooks.h"
