// native/quant under the sanitizers: every reader on every byte pattern, every writer on numbers of every
// size, with source and destination at odd addresses and ending at the end of their allocation.
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "main.h"
#include "quant/half.h"
#include "quant/quant.h"

using namespace hy3;

namespace {

constexpr int kBlocks = 40;

// Memory of `size` bytes that starts one byte into an allocation and ends with it.
struct OddBytes {
    explicit OddBytes(size_t size) : memory(size + 1) {}
    uint8_t* data() { return memory.data() + 1; }
    std::vector<uint8_t> memory;
};

template <typename Use>
void for_each_type(Use use) {
    for (uint32_t id = 0; id < 64; ++id)
        if (const TypeInfo* info = find_type(id)) use(*info);
    use(type_info(Type::Q8_0_HY3));
}

std::vector<float> random_rows(int kind, size_t n, std::mt19937& random) {
    std::vector<float> rows(n);
    std::normal_distribution<float> normal;
    for (float& v : rows) {
        const float z = normal(random);
        const int exponent = static_cast<int>(random() % 200) - 140;
        v = kind == 0   ? 0.02f * z
            : kind == 1 ? std::ldexp(z, exponent > 12 ? exponent % 12 : exponent)  // side by side
            : kind == 2 ? 1e-42f * z
            : kind == 3 ? (random() % 16 == 0 ? z : 0.0f)
                        : 30000.0f * std::tanh(z);
    }
    return rows;
}

}  // namespace

TEST(every_reader_takes_any_bytes) {
    std::mt19937 random(1);
    for_each_type([&](const TypeInfo& info) {
        if (!info.dequantizable) return;
        OddBytes blocks(static_cast<size_t>(kBlocks) * info.bytes);
        for (int pattern = 0; pattern < 4; ++pattern) {
            for (size_t i = 0; i + 1 < blocks.memory.size(); ++i)
                blocks.data()[i] = static_cast<uint8_t>(pattern == 0 ? 0 : pattern == 1 ? 255 : random());
            std::vector<float> values(static_cast<size_t>(kBlocks) * info.block, -1.0f);
            dequantize(info.type, blocks.data(), values.data(), static_cast<int64_t>(values.size()));
            if (pattern == 0)
                for (const float v : values) CHECK(v == 0.0f);
        }
    });
}

TEST(every_writer_takes_any_finite_row) {
    std::mt19937 random(2);
    const int64_t rows = 3, cols = 512;
    for_each_type([&](const TypeInfo& info) {
        if (!info.quantizable) return;
        OddBytes blocks(rows * row_bytes(info.type, cols));
        for (int kind = 0; kind < 5; ++kind) {
            const std::vector<float> in = random_rows(kind, rows * cols, random);
            std::vector<float> importance(cols), out(rows * cols);
            for (float& w : importance)
                w = random() % 8 == 0 ? 0.0f : std::ldexp(1.0f, static_cast<int>(random() % 60) - 30);
            for (const float* weights :
                 {static_cast<const float*>(nullptr), static_cast<const float*>(importance.data())}) {
                quantize(info.type, in.data(), blocks.data(), rows, cols, weights);
                dequantize(info.type, blocks.data(), out.data(), rows * cols);
                for (const float v : out) CHECK(std::isfinite(v));
            }
        }
    });
}

TEST(rows_are_converted_by_any_number_of_threads) {
    std::mt19937 random(3);
    const int64_t rows = 70, cols = 2048;
    const std::vector<float> in = random_rows(0, rows * cols, random);
    std::vector<uint8_t> expected(rows * row_bytes(Type::Q4_K, cols)), got(expected.size());
    convert_rows(Type::F32, in.data(), Type::Q4_K, expected.data(), rows, cols, nullptr, 1);
    for (const int threads : {2, 7}) {
        convert_rows(Type::F32, in.data(), Type::Q4_K, got.data(), rows, cols, nullptr, threads);
        CHECK(got == expected);
    }
    CHECK_ERROR(Status::invalid_argument, "0 threads",
                convert_rows(Type::F32, in.data(), Type::Q4_K, got.data(), rows, cols, nullptr, 0));
}

TEST(half_floats_survive_the_round_trip) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const float f = f16_to_f32(static_cast<uint16_t>(h));
        if (std::isnan(f)) {
            CHECK((f32_to_f16(f) & 0x7fffu) > 0x7c00u);
        } else {
            CHECK_EQ(f32_to_f16(f), h);
        }
        const float b = bf16_to_f32(static_cast<uint16_t>(h));
        if (!std::isnan(b)) CHECK_EQ(f32_to_bf16(b), h);
    }
}

TEST(a_row_is_a_whole_number_of_blocks) {
    CHECK_EQ(row_bytes(Type::Q4_K, 4096), 16u * 144u);
    CHECK_ERROR(Status::format, "multiple of 256", row_bytes(Type::Q4_K, 4097));
    CHECK_ERROR(Status::format, "too large", row_bytes(Type::F32, UINT64_MAX));
    CHECK(find_type("Q4_k") == find_type(12u));
    CHECK(find_type("q4_x") == nullptr);
    CHECK(find_type(4u) == nullptr);
}
