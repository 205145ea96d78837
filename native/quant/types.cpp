// The table behind types.h.
#include "quant/types.h"

#include "core/error.h"
#include "quant/blocks.h"

namespace hy3 {
namespace {

// type, name, elements per block, bytes per block, quantizable, dequantizable
constexpr TypeInfo kTypes[] = {
    {Type::F32, "f32", 1, 4, true, true},
    {Type::F16, "f16", 1, 2, true, true},
    {Type::BF16, "bf16", 1, 2, true, true},
    {Type::Q4_0, "q4_0", kSmallBlock, sizeof(BlockQ4_0), true, true},
    {Type::Q4_1, "q4_1", kSmallBlock, sizeof(BlockQ4_1), false, true},
    {Type::Q5_0, "q5_0", kSmallBlock, sizeof(BlockQ5_0), false, true},
    {Type::Q5_1, "q5_1", kSmallBlock, sizeof(BlockQ5_1), false, true},
    {Type::Q8_0, "q8_0", kSmallBlock, sizeof(BlockQ8_0), true, true},
    {Type::Q8_0_HY3, "q8_0_hy3", kSmallBlock, sizeof(BlockQ8_0_HY3), false, true},
    {Type::Q2_K, "q2_k", kSuperBlock, sizeof(BlockQ2_K), true, true},
    {Type::Q3_K, "q3_k", kSuperBlock, sizeof(BlockQ3_K), true, true},
    {Type::Q4_K, "q4_k", kSuperBlock, sizeof(BlockQ4_K), true, true},
    {Type::Q5_K, "q5_k", kSuperBlock, sizeof(BlockQ5_K), true, true},
    {Type::Q6_K, "q6_k", kSuperBlock, sizeof(BlockQ6_K), true, true},
    {Type::IQ1_S, "iq1_s", kSuperBlock, sizeof(BlockIQ1_S), false, true},
    {Type::IQ1_M, "iq1_m", kSuperBlock, sizeof(BlockIQ1_M), false, true},
    {Type::IQ2_XXS, "iq2_xxs", kSuperBlock, sizeof(BlockIQ2_XXS), false, true},
    {Type::IQ2_XS, "iq2_xs", kSuperBlock, sizeof(BlockIQ2_XS), false, true},
    {Type::IQ2_S, "iq2_s", kSuperBlock, sizeof(BlockIQ2_S), false, true},
    {Type::IQ3_XXS, "iq3_xxs", kSuperBlock, sizeof(BlockIQ3_XXS), false, true},
    {Type::IQ3_S, "iq3_s", kSuperBlock, sizeof(BlockIQ3_S), false, true},
    {Type::IQ4_NL, "iq4_nl", kSmallBlock, sizeof(BlockIQ4_NL), true, true},
    {Type::IQ4_XS, "iq4_xs", kSuperBlock, sizeof(BlockIQ4_XS), true, true},
    {Type::MXFP4, "mxfp4", kSmallBlock, sizeof(BlockMXFP4), true, true},
    {Type::I8, "i8", 1, 1, false, false},
    {Type::I16, "i16", 1, 2, false, false},
    {Type::I32, "i32", 1, 4, false, false},
    {Type::I64, "i64", 1, 8, false, false},
    {Type::F64, "f64", 1, 8, false, false},
};

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

}  // namespace

const TypeInfo* find_type(uint32_t id) {
    for (const TypeInfo& info : kTypes)
        if (static_cast<uint32_t>(info.type) == id) return &info;
    return nullptr;
}

const TypeInfo* find_type(std::string_view name) {
    for (const TypeInfo& info : kTypes)
        if (equal_ignoring_case(info.name, name)) return &info;
    return nullptr;
}

const TypeInfo& type_info(Type type) {
    const TypeInfo* info = find_type(static_cast<uint32_t>(type));
    if (info == nullptr)
        fail(Status::internal, "Unknown tensor type ", static_cast<uint32_t>(type), ". This is a bug.");
    return *info;
}

uint64_t row_bytes(Type type, uint64_t n) {
    const TypeInfo& info = type_info(type);
    if (n % info.block != 0)
        fail(Status::format, "A row of ", n, " elements cannot be stored as ", info.name,
             ". That type needs a multiple of ", info.block, '.');
    const uint64_t blocks = n / info.block;
    if (blocks > UINT64_MAX / info.bytes)
        fail(Status::format, "A row of ", n, " elements of type ", info.name,
             " is too large. The file is damaged.");
    return blocks * info.bytes;
}

}  // namespace hy3
