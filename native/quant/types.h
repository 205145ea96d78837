// The tensor types of GGUF files: ids as stored in the file, names, block geometry.
// A row of n elements is stored as n / block consecutive blocks of `bytes` bytes each (layouts: blocks.h).
// Source of the ids and sizes: the `gguf` package's GGMLQuantizationType and GGML_QUANT_SIZES.
#pragma once

#include <cstdint>
#include <string_view>

namespace hy3 {

enum class Type : uint32_t {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    MXFP4 = 39,
    // Never in a file: the original hy3 engine writes id 8 for its own Q8_0 of 36-byte blocks. Whoever reads
    // such a file maps the id to this one.
    Q8_0_HY3 = 0x10008,
};

struct TypeInfo {
    Type type;
    const char* name;    // lower case, as on the command line: "q4_k"
    uint32_t block;      // elements per block
    uint32_t bytes;      // bytes per block
    bool quantizable;    // quantize() can write it
    bool dequantizable;  // dequantize() can read it
};

// nullptr when the id or name (any case) is none of the above.
const TypeInfo* find_type(uint32_t id);
const TypeInfo* find_type(std::string_view name);

const TypeInfo& type_info(Type type);
inline const char* type_name(Type type) {
    return type_info(type).name;
}

// Bytes of a row of n elements. Throws Error(format) when the block size does not divide n or the product
// overflows.
uint64_t row_bytes(Type type, uint64_t n);

}  // namespace hy3
