// The CPU kernels of every instruction set that this machine can run, against each other and on awkward
// numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "main.h"
#include "noise.h"
#include "quant/quant.h"
#include "random_blocks.h"

using namespace hy3;
using namespace hy3::cpu;
using hy3::test::noise;
using hy3::test::same_bits;

namespace {

// `rows` products of each of n activation rows, with the kernels' own panels, as (n, rows).
std::vector<float> multiply(const Kernels& kernels, const Matrix& w, const std::vector<float>& x, int64_t n) {
    QuantizedArray array;
    const QuantizedRows& quantized = array.get(n, w.cols);
    if (takes_quantized(w.type))
        for (int64_t r = 0; r < n; r++)
            kernels.quantize(x.data() + r * w.cols, r, 0, quantized.stride / cpu::kGroup, quantized);
    Array<uint8_t> scratch;
    std::vector<float> tile(static_cast<size_t>(n * kPanel)), out(static_cast<size_t>(n * w.rows));
    const ProductRows rows{x.data(), &quantized, nullptr, n};
    for (int64_t first = 0; first < w.rows; first += kPanel) {
        const int count = static_cast<int>(std::min<int64_t>(kPanel, w.rows - first));
        kernels.product(w, first, count, rows, tile.data(), scratch.get(kernels.scratch_bytes), nullptr);
        for (int64_t r = 0; r < n; r++)
            for (int c = 0; c < count; c++)
                out[static_cast<size_t>(r * w.rows + first + c)] = tile[static_cast<size_t>(r * kPanel + c)];
    }
    return out;
}

// Evenly from [-scale, scale); unlike noise(), the same numbers wherever it runs.
std::vector<float> even_noise(int64_t n, uint32_t seed, float scale) {
    std::mt19937 generator(seed);
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = (static_cast<float>(generator() >> 8) * 0x1p-23f - 1.0f) * scale;
    return out;
}

// FNV-1a.
uint64_t hash_of(const std::vector<float>& values) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const float value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        for (int i = 0; i < 32; i += 8) hash = (hash ^ (bits >> i & 255u)) * 0x100000001b3u;
    }
    return hash;
}

void check_hash(const Kernels& kernels, const char* what, const std::vector<float>& values, uint64_t known) {
    if (hash_of(values) == known) return;
    std::printf("%s, %s: 0x%016llx\n", kernels.name, what, static_cast<unsigned long long>(hash_of(values)));
    CHECK(hash_of(values) == known);
}

}  // namespace

// Row o of w times row r of x, in double precision; `size`: the norm of the weights.
struct Exact {
    double value = 0.0;
    double size = 0.0;
};
Exact exact_product(const float* w, const float* x, int64_t cols) {
    Exact out;
    for (int64_t c = 0; c < cols; c++) {
        const auto weight = static_cast<double>(w[c]);
        out.value += weight * static_cast<double>(x[c]);
        out.size += weight * weight;
    }
    out.size = std::sqrt(out.size);
    return out;
}

TEST(kernels_agree_to_the_bit_and_with_float_arithmetic) {
    constexpr int64_t rows = 37, n = 13;
    for (const Type type :
         {Type::F32,   Type::F16,    Type::BF16,    Type::Q8_0,   Type::Q4_0,  Type::Q4_1,
          Type::Q5_0,  Type::Q5_1,   Type::Q2_K,    Type::Q3_K,   Type::Q4_K,  Type::Q5_K,
          Type::Q6_K,  Type::IQ4_NL, Type::MXFP4,   Type::IQ4_XS, Type::IQ3_S, Type::IQ3_XXS,
          Type::IQ2_S, Type::IQ2_XS, Type::IQ2_XXS, Type::IQ1_M,  Type::IQ1_S}) {
        const int64_t block = type_info(type).block;
        for (const int64_t cols : {block, block == 256 ? int64_t{1536} : block == 32 ? 1120 : 1099}) {
            const std::vector<uint8_t> blocks = test::random_blocks(type, rows, cols, 1);
            const std::vector<float> x = noise(n * cols, 2);
            const Matrix w{type, rows, cols, blocks.data(), row_bytes(type, static_cast<uint64_t>(cols))};
            const std::vector<float> first = multiply(*usable_kernels().back(), w, x, n);
            for (const Kernels* kernels : usable_kernels()) {
                CHECK(same_bits(multiply(*kernels, w, x, n), first));
                // Few rows at a time take other paths.
                for (const int64_t some : {1, 2, 3, 4, 5, 7}) {
                    const std::vector<float> few(x.begin() + 5 * cols, x.begin() + (5 + some) * cols);
                    CHECK(same_bits(multiply(*kernels, w, few, some),
                                    {first.begin() + 5 * rows, first.begin() + (5 + some) * rows}));
                }
            }
            std::vector<float> values(static_cast<size_t>(rows * cols));
            dequantize(type, blocks.data(), values.data(), rows * cols);
            for (int64_t r = 0; r < n; r++)
                for (int64_t o = 0; o < rows; o++) {
                    const Exact exact = exact_product(values.data() + o * cols, x.data() + r * cols, cols);
                    // Rounding activations to int8 costs about 0.5% of the norm of the weights.
                    const double allowed = (takes_quantized(type) ? 0.05 : 1e-5) * exact.size;
                    const auto got = static_cast<double>(first[static_cast<size_t>(r * rows + o)]);
                    CHECK(std::abs(exact.value - got) < allowed);
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

// Where a processor is emulated, it is known what its instruction sets are.
TEST(isa_is_detected) {
    const char* const expected = std::getenv("HY3_TEST_ISAS");
    if (expected == nullptr) return;
    std::string found;
    for (const Kernels* kernels : usable_kernels()) found += cat(found.empty() ? "" : " ", kernels->name);
    CHECK_EQ(found, std::string(expected));
}

// One list for every processor: what ran on x86-64 and on arm64 has computed the same.
TEST(isa_products_have_the_known_bits) {
    const struct {
        Type type;
        uint64_t hash;
    } known[] = {
        {Type::F32, 0xb0e07108199b3f28u},     {Type::F16, 0xe0e8be2e697cb0fbu},
        {Type::BF16, 0x90e07d17e52c3246u},    {Type::Q4_0, 0xba6ade899b0c094au},
        {Type::Q4_1, 0x4796c14a425b9695u},    {Type::Q5_0, 0x8676f88b995e47f2u},
        {Type::Q5_1, 0x6fd19970e2e451c6u},    {Type::Q8_0, 0x838623c49d4834feu},
        {Type::Q2_K, 0x8d11f9909ec6e976u},    {Type::Q3_K, 0x71baa74e5f67b604u},
        {Type::Q4_K, 0xcfaea45b0b8455f6u},    {Type::Q5_K, 0xeb683d3262f0610au},
        {Type::Q6_K, 0x2a39c087e0b96f4eu},    {Type::IQ1_S, 0xaf2e9177818caecdu},
        {Type::IQ1_M, 0xe7cafbfbbdd9ab3bu},   {Type::IQ2_XXS, 0xc6a620f93d0871e1u},
        {Type::IQ2_XS, 0xaa2784e14cab24d3u},  {Type::IQ2_S, 0xd1d7d0f26bdb0eb3u},
        {Type::IQ3_XXS, 0xf986adf5d64ad143u}, {Type::IQ3_S, 0xfd569b7e63c6438bu},
        {Type::IQ4_NL, 0xf725e8a6d556755cu},  {Type::IQ4_XS, 0x5c24df0a05046728u},
        {Type::MXFP4, 0xcdf607fb4d6ef6f9u},
    };
    constexpr int64_t rows = 37;
    for (const auto& [type, hash] : known) {
        const TypeInfo& info = type_info(type);
        const int64_t cols = info.block == 256 ? 1536 : info.block == 32 ? 1120 : 1099;
        const std::vector<uint8_t> blocks = test::random_blocks(type, rows, cols, 5);
        const Matrix w{type, rows, cols, blocks.data(), row_bytes(type, static_cast<uint64_t>(cols))};
        const std::vector<float> x = even_noise(15 * cols, 6, 3.0f);
        for (const Kernels* kernels : usable_kernels()) {
            const std::vector<float> all = multiply(*kernels, w, x, 15);
            check_hash(*kernels, info.name, all, hash);
            for (const int64_t n : {1, 2, 3, 6})
                CHECK(same_bits(multiply(*kernels, w, x, n), {all.begin(), all.begin() + n * rows}));
        }
    }
}

TEST(isa_row_operations_have_the_known_bits) {
    constexpr int64_t n = 1099;
    const std::vector<float> x = even_noise(n, 8, 100.0f), y = even_noise(n, 9, 1.0f);
    for (const Kernels* kernels : usable_kernels()) {
        std::vector<float> out(n);
        kernels->rms_norm(n, 1e-5f, x.data(), y.data(), out.data());
        check_hash(*kernels, "rms_norm", out, 0x561dd43e6cddac75u);
        kernels->swiglu(n, x.data(), y.data(), out.data());
        check_hash(*kernels, "swiglu", out, 0xaf78b0bd523648e4u);
        out = y;
        kernels->rotate(n / 2, x.data(), x.data() + n / 2, out.data());
        check_hash(*kernels, "rotate", out, 0xe00d74d9acf00b2au);
        out = y;
        kernels->add(n, x.data(), out.data());
        check_hash(*kernels, "add", out, 0xdf9cec689024c58eu);
        out = y;
        kernels->add_scaled(n, 0.3f, x.data(), out.data());
        check_hash(*kernels, "add_scaled", out, 0x75e4c3fdd8ebb295u);
    }
}
