// The generic algorithms, in the order they build on each other. Included by isa_*.cpp inside a namespace of
// its own, after the vector vocabulary.

// clang-format off
#include "cpu/generic/panel.h"
#include "cpu/generic/unpack.h"
#include "cpu/generic/unpack_panel.h"
#include "cpu/generic/tile.h"
#include "cpu/generic/float_product.h"
#include "cpu/generic/product.h"
#include "cpu/generic/rows.h"
#include "cpu/generic/kv_store.h"
#include "cpu/generic/attention_blocks.h"
#include "cpu/generic/attention.h"
#include "cpu/generic/probe.h"
// clang-format on

// constexpr: the table must be data, not code of this instruction set that runs when the library is loaded.
constexpr Kernels make_table(const char* name, bool (*usable)()) {
    return {name,        usable,   sizeof(Panel),    product,        quantize,        rms_norm,
            rotate,      swiglu,   add_row,          add_scaled_row, store_row<true>, store_row<false>,
            attend_span, add_span, finish_attention, read_memory,    multiply_int8};
}
