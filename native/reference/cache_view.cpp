#include "reference/cache_view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "quant/half.h"

namespace hy3 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
void put(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}
template <typename T>
T get(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// The largest |x|; NaN if one is.
float magnitude(const float* x, size_t n) {
    float largest = 0.0f;
    for (size_t i = 0; i < n; i++) {
        if (std::isnan(x[i])) return kNan;
        largest = std::max(largest, std::abs(x[i]));
    }
    return largest;
}

}  // namespace

void CacheView::write(int64_t position, const float* x) const {
    std::byte* to = head(position);
    const auto p = static_cast<size_t>(position % kPageSize), n = static_cast<size_t>(layout_.head_dim);
    switch (layout_.type) {
        case KvType::f32:
            for (size_t d = 0; d < n; d++) put(to + at(p, d), x[d]);
            break;
        case KvType::f16:
            for (size_t d = 0; d < n; d++) put(to + at(p, d), f32_to_f16(x[d]));
            break;
        case KvType::q8:
            write_q8(to, p, x);
            break;
        case KvType::q4:
            for (size_t d = 0; d < n; d += kKvGroup) write_q4(to, p, d, x + d);
            break;
    }
}

// Scale max|x| / 127. A row with NaN or infinity has scale NaN, one of nearly nothing is zero.
void CacheView::write_q8(std::byte* head, size_t p, const float* x) const {
    const auto n = static_cast<size_t>(layout_.head_dim);
    const float largest = magnitude(x, n);
    const bool usable = largest >= 1e-30f && largest <= 3e38f;
    const float scale = usable ? largest / 127.0f : largest < 1e-30f ? 0.0f : kNan;
    put(head + layout_.scale_at(p, 0), scale);
    for (size_t d = 0; d < n; d++) {
        const int code = usable ? static_cast<int>(std::nearbyint(x[d] * (127.0f / largest))) : 0;
        put(head + at(p, d), static_cast<uint8_t>(code + (keys_ ? kKeyOffsetQ8 : 0)));
    }
}

// Scale max|x| / 7.5 in float16, the codes by the scale as it is kept.
void CacheView::write_q4(std::byte* head, size_t p, size_t first, const float* x) const {
    const float largest = magnitude(x, kKvGroup);
    uint16_t half = f32_to_f16(largest / kMiddleQ4);
    const float scale = f16_to_f32(half);
    const bool usable = scale > 0.0f && scale <= 65504.0f;
    if (!usable) half = largest < 1.0f ? 0 : 0x7e00;  // NaN
    put(head + layout_.scale_at(p, first), half);
    for (size_t d = 0; d < kKvGroup; d++) {
        const float exact = usable ? std::fma(x[d], 1.0f / scale, kMiddleQ4) : 0.0f;
        const auto code = static_cast<uint8_t>(std::nearbyint(std::clamp(exact, 0.0f, 15.0f)));
        std::byte* to = head + at(p, first + d);
        const auto kept = get<uint8_t>(to);
        put(to, static_cast<uint8_t>(is_high(d) ? (kept & 0x0f) | code << 4 : (kept & 0xf0) | code));
    }
}

void CacheView::read(int64_t position, float* x) const {
    const std::byte* from = head(position);
    const auto p = static_cast<size_t>(position % kPageSize), n = static_cast<size_t>(layout_.head_dim);
    for (size_t d = 0; d < n; d++) {
        const std::byte* element = from + at(p, d);
        const std::byte* scale = from + layout_.scale_at(p, d);
        switch (layout_.type) {
            case KvType::f32:
                x[d] = get<float>(element);
                break;
            case KvType::f16:
                x[d] = f16_to_f32(get<uint16_t>(element));
                break;
            case KvType::q8: {
                const int code = keys_ ? get<uint8_t>(element) - kKeyOffsetQ8 : get<int8_t>(element);
                x[d] = static_cast<float>(code) * get<float>(scale);
                break;
            }
            case KvType::q4: {
                const int code = is_high(d) ? get<uint8_t>(element) >> 4 : get<uint8_t>(element) & 0x0f;
                x[d] = (static_cast<float>(code) - kMiddleQ4) * f16_to_f32(get<uint16_t>(scale));
                break;
            }
        }
    }
}

}  // namespace hy3
