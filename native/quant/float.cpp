// F32, F16 and BF16 rows: one element a block.
#include <cfloat>
#include <cstring>

#include "quant/codec.h"
#include "quant/half.h"

namespace hy3 {
namespace {

void read_f32(const void* src, float* dst, int64_t n) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
}

void write_f32(const float* src, void* dst, int64_t n, const float*) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
}

// The 16-bit side may lie at an odd address: it goes through a small aligned buffer.
constexpr int64_t kStep = 256;

template <float (*convert)(uint16_t)>
void read_16(const void* src, float* dst, int64_t n) {
    const auto* bytes = static_cast<const uint8_t*>(src);
    uint16_t buffer[kStep];
    for (int64_t i = 0; i < n; i += kStep) {
        const int64_t m = n - i < kStep ? n - i : kStep;
        std::memcpy(buffer, bytes + 2 * i, static_cast<size_t>(m) * 2);
        for (int64_t j = 0; j < m; ++j) dst[i + j] = convert(buffer[j]);
    }
}

template <uint16_t (*convert)(float)>
void write_16(const float* src, void* dst, int64_t n, const float*) {
    auto* bytes = static_cast<uint8_t*>(dst);
    uint16_t buffer[kStep];
    for (int64_t i = 0; i < n; i += kStep) {
        const int64_t m = n - i < kStep ? n - i : kStep;
        for (int64_t j = 0; j < m; ++j) buffer[j] = convert(src[i + j]);
        std::memcpy(bytes + 2 * i, buffer, static_cast<size_t>(m) * 2);
    }
}

}  // namespace

// The 16-bit limits are the last floats that do not round to infinity.
const Codec kFloatCodecs[3] = {
    {Type::F32, read_f32, write_f32, FLT_MAX},
    {Type::F16, read_16<f16_to_f32>, write_16<f32_to_f16>, 0x1.ffdffep+15f},
    {Type::BF16, read_16<bf16_to_f32>, write_16<f32_to_bf16>, 0x1.fefffep+127f},
};

}  // namespace hy3
