// The CPU kernels of every instruction set that this machine can run, against each other and on awkward
// numbers.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "main.h"
#include "quant/quant.h"

using namespace hy3;
using namespace hy3::cpu;

namespace {

std::vector<float> noise(int64_t n, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = normal(generator);
    return out;
}

// `rows` products of each of n activation rows, with the kernels' own panels, as (n, rows).
std::vector<float> multiply(const Kernels& kernels, const Matrix& w, const std::vector<float>& x, int64_t n) {
    QuantizedArray array;
    const QuantizedRows& quantized = array.get(n, w.cols);
    if (takes_quantized(w.type))
        for (int64_t r = 0; r < n; r++) kernels.quantize_row(x.data() + r * w.cols, r, quantized);
    Array<uint8_t> scratch;
    std::vector<float> tile(static_cast<size_t>(n * kPanel)), out(static_cast<size_t>(n * w.rows));
    const ProductRows rows{x.data(), &quantized, nullptr, n};
    for (int64_t first = 0; first < w.rows; first += kPanel) {
        const int count = static_cast<int>(std::min<int64_t>(kPanel, w.rows - first));
        kernels.product(w, first, count, rows, tile.data(), scratch.get(kernels.scratch_bytes));
        for (int64_t r = 0; r < n; r++)
            for (int c = 0; c < count; c++)
                out[static_cast<size_t>(r * w.rows + first + c)] = tile[static_cast<size_t>(r * kPanel + c)];
    }
    return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(kernels_agree_to_the_bit_and_with_float_arithmetic) {
    constexpr int64_t rows = 37, n = 13;
    for (const Type type :
         {Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q4_0, Type::IQ4_NL, Type::MXFP4, Type::Q2_K,
          Type::Q3_K, Type::Q4_K, Type::Q5_K, Type::Q6_K, Type::IQ4_XS}) {
        const bool super = type_info(type).block == 256, small = type_info(type).block == 32;
        for (const int64_t cols : {super ? int64_t{256} : int64_t{32}, super   ? int64_t{1536}
                                                                       : small ? 1120
                                                                               : 1099}) {
            const std::vector<float> weights = noise(rows * cols, 1), x = noise(n * cols, 2);
            const uint64_t row = row_bytes(type, static_cast<uint64_t>(cols));
            std::vector<uint8_t> blocks(static_cast<size_t>(rows) * row);
            quantize(type, weights.data(), blocks.data(), rows, cols, nullptr);
            const Matrix w{type, rows, cols, blocks.data(), row};
            const std::vector<float> first = multiply(*usable_kernels().back(), w, x, n);
            for (const Kernels* kernels : usable_kernels()) {
                CHECK(same_bits(multiply(*kernels, w, x, n), first));
                // One row at a time takes the other path.
                const std::vector<float> one(x.begin() + 5 * cols, x.begin() + 6 * cols);
                const std::vector<float> alone = multiply(*kernels, w, one, 1);
                CHECK(same_bits(alone, {first.begin() + 5 * rows, first.begin() + 6 * rows}));
            }
            std::vector<float> values(static_cast<size_t>(rows * cols));
            dequantize(type, blocks.data(), values.data(), rows * cols);
            for (int64_t r = 0; r < n; r++)
                for (int64_t o = 0; o < rows; o++) {
                    double exact = 0.0;
                    for (int64_t c = 0; c < cols; c++)
                        exact += static_cast<double>(values[static_cast<size_t>(o * cols + c)]) *
                                 static_cast<double>(x[static_cast<size_t>(r * cols + c)]);
                    // Rounding activations to int8 costs about 0.5% of the norm of a product of this length.
                    const double allowed =
                        (takes_quantized(type) ? 0.05 : 1e-5) * std::sqrt(static_cast<double>(cols));
                    CHECK(std::abs(exact - static_cast<double>(first[static_cast<size_t>(r * rows + o)])) <
                          allowed);
                }
        }
    }
}

TEST(kernels_carry_on_what_is_not_finite) {
    constexpr int64_t cols = 64;
    const std::vector<float> weights = noise(cols, 3);
    std::vector<uint8_t> blocks(row_bytes(Type::Q8_0, cols));
    quantize(Type::Q8_0, weights.data(), blocks.data(), 1, cols, nullptr);
    const Matrix w{Type::Q8_0, 1, cols, blocks.data(), row_bytes(Type::Q8_0, cols)};
    for (const Kernels* kernels : usable_kernels()) {
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<float> x = noise(cols, 4);
            x[40] = bad;
            CHECK(std::isnan(multiply(*kernels, w, x, 1)[0]));
        }
        // The inverse of such a scale would be infinite.
        CHECK_EQ(multiply(*kernels, w, std::vector<float>(cols, 1e-40f), 1)[0], 0.0f);
    }
}
