// One product of 16 weight rows, for counting its instructions (tools/count_instructions.py):
//
//   hy3_one_product TYPE ROWS        HY3_ISA chooses the instruction set
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "random_blocks.h"

using namespace hy3;
using namespace hy3::cpu;

int main(int argc, char** argv) {
    const TypeInfo* info = argc == 3 ? find_type(argv[1]) : nullptr;
    const int64_t rows = argc == 3 ? std::atoll(argv[2]) : 0;
    if (info == nullptr || rows < 1) {
        std::fprintf(stderr, "usage: hy3_one_product TYPE ROWS\n");
        return 2;
    }
    constexpr int64_t cols = 1024;
    const std::vector<uint8_t> weights = test::random_blocks(info->type, kPanel, cols, 1);
    const Matrix w{info->type, kPanel, cols, weights.data(), row_bytes(info->type, cols)};
    const std::vector<float> x(static_cast<size_t>(rows * cols), 1.0f);
    const Kernels& kernels = select_kernels();
    QuantizedArray array;
    const QuantizedRows& quantized = array.get(rows, cols);
    for (int64_t r = 0; r < rows; r++)
        kernels.quantize(x.data() + r * cols, r, 0, quantized.stride / kGroup, quantized);
    Array<uint8_t> scratch;
    std::vector<float> tile(static_cast<size_t>(rows * kPanel));
    kernels.product(w, 0, kPanel, {x.data(), &quantized, nullptr, rows}, tile.data(),
                    scratch.get(kernels.scratch_bytes), nullptr);
}
