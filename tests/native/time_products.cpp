// How fast one core multiplies, by weight type and number of activation rows; beside it, if a libggml-cpu.so
// is named, ggml's mul_mat on the same shapes and one thread.
//
//   hy3_time_products [--ggml PATH/libggml-cpu.so] [--mib N] [--cols N] [TYPE...]
//
// HY3_ISA chooses the instruction set. Weights are N MiB a matrix: 8, more than a second-level cache, unless
// told otherwise; with more than all caches hold, it shows how well reading the memory is hidden. Each figure
// is the fastest of several passes, hy3 and ggml in turn, by the thread's processor time: GB/s of weight
// bytes, and beside it, for several rows and quantized weights, the share of the core's int8 peak in the same
// run.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels.h"
#include "random_blocks.h"

using namespace hy3;
using namespace hy3::cpu;

namespace {

constexpr int64_t kRows[] = {1, 2, 3, 4, 8, 16, 64};
constexpr int64_t kMostRows = 64;

// Processor time of the thread: a busy machine distorts it less than the time of day.
double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds(const std::function<void()>& work) {
    const double begin = thread_seconds();
    work();
    return thread_seconds() - begin;
}

// Multiplications and additions a second.
double int8_peak(const Kernels& kernels) {
    double best = 0.0;
    int32_t sum = 1;
    for (int i = 0; i < 20; i++) {
        int64_t done = 0;
        const double took = seconds([&] { done = kernels.multiply_int8(10000, &sum); });
        best = std::max(best, static_cast<double>(done) / took);
    }
    return best;
}

// ggml's public C interface, as far as it is needed here.
class Ggml {
  public:
    explicit Ggml(const char* path) {
        library_ = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (library_ == nullptr) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::exit(1);
        }
        symbol<void()>("ggml_cpu_init")();
    }

    struct Product {
        void* context;
        void* graph;
        void (*release)(void*);
        Product(const Product&) = delete;
        Product& operator=(const Product&) = delete;
        Product(void* c, void* g, void (*free)(void*)) : context(c), graph(g), release(free) {}
        ~Product() { release(context); }
    };

    std::unique_ptr<Product> product(Type type, int64_t rows, int64_t cols, int64_t n,
                                     const std::vector<uint8_t>& weights, const std::vector<float>& x) const {
        struct Params {
            size_t bytes;
            void* buffer;
            bool no_alloc;
        };
        void* context =
            symbol<void*(Params)>("ggml_init")({weights.size() + (size_t{320} << 20), nullptr, false});
        const auto tensor = symbol<void*(void*, int, int64_t, int64_t)>("ggml_new_tensor_2d");
        const auto data = symbol<void*(void*)>("ggml_get_data");
        void* w = tensor(context, static_cast<int>(type), cols, rows);
        std::memcpy(data(w), weights.data(), weights.size());
        void* activations = tensor(context, 0, cols, n);
        std::memcpy(data(activations), x.data(), static_cast<size_t>(n * cols) * sizeof(float));
        void* out = symbol<void*(void*, void*, void*)>("ggml_mul_mat")(context, w, activations);
        void* graph = symbol<void*(void*)>("ggml_new_graph")(context);
        symbol<void(void*, void*)>("ggml_build_forward_expand")(graph, out);
        return std::make_unique<Product>(context, graph, symbol<void(void*)>("ggml_free"));
    }

    void run(const Product& product) const {
        symbol<int(void*, void*, int)>("ggml_graph_compute_with_ctx")(product.context, product.graph, 1);
    }

  private:
    template <typename F>
    F* symbol(const char* name) const {
        void* found = dlsym(library_, name);
        if (found == nullptr) {
            std::fprintf(stderr, "%s\n", dlerror());
            std::exit(1);
        }
        return reinterpret_cast<F*>(found);
    }
    void* library_;
};

struct Timer {
    const Kernels& kernels;
    const Ggml* ggml;
    int64_t bytes, cols;
    std::vector<float> x;
    QuantizedArray quantized;
    Array<uint8_t> scratch;
    Array<float> tile;

    Timer(const Kernels& k, const Ggml* g, int64_t matrix_bytes, int64_t columns)
        : kernels(k), ggml(g), bytes(matrix_bytes), cols(columns), x(kMostRows * columns) {
        std::mt19937 random(1);
        std::normal_distribution<float> normal;
        for (float& value : x) value = normal(random);
        const QuantizedRows& rows = quantized.get(kMostRows, cols);
        for (int64_t r = 0; r < kMostRows; r++)
            k.quantize(x.data() + r * cols, r, 0, rows.stride / kGroup, rows);
        tile.get(kMostRows * kPanel);
        scratch.get(k.scratch_bytes);
    }

    void multiply(const Matrix& w, int64_t n) {
        const ProductRows rows{x.data(), &quantized.rows(), nullptr, n};
        for (int64_t first = 0; first + kPanel <= w.rows; first += kPanel)
            kernels.product(w, first, kPanel, rows, tile.data(), scratch.data(), w.row(first + kPanel));
    }

    void print(Type type) {
        const TypeInfo& info = type_info(type);
        if (cols % info.block != 0) {
            std::printf("%-8s | has blocks of %d columns\n", info.name, static_cast<int>(info.block));
            return;
        }
        const int64_t row = cols / info.block * info.bytes, rows = bytes / row / kPanel * kPanel;
        const std::vector<uint8_t> weights = test::random_blocks(type, rows, cols, 2);
        const Matrix w{type, rows, cols, weights.data(), static_cast<uint64_t>(row)};
        const double peak = int8_peak(kernels);
        std::printf("%-8s", info.name);
        for (const int64_t n : kRows) {
            double ours = 1e9, theirs = 1e9;
            const auto product = ggml != nullptr ? ggml->product(type, rows, cols, n, weights, x) : nullptr;
            double spent = 0.0;
            for (int pass = 0; pass < 40 && (pass < 4 || spent < 0.1); pass++) {
                const double a = seconds([&] { multiply(w, n); });
                const double b = product != nullptr ? seconds([&] { ggml->run(*product); }) : 0.0;
                ours = std::min(ours, a);
                theirs = std::min(theirs, b);
                spent += a + b;
            }
            const double ops = 2.0 * static_cast<double>(rows * cols * n);
            std::printf(" |%6.1f", static_cast<double>(rows * row) / ours * 1e-9);
            if (n > 1 && takes_quantized(type)) std::printf(" %3.0f%%", 100.0 * ops / ours / peak);
            if (n > 1 && !takes_quantized(type)) std::printf("     ");
            if (product != nullptr) std::printf(" x%5.2f", theirs / ours);
            std::fflush(stdout);
        }
        std::printf("\n");
    }
};

}  // namespace

int main(int argc, char** argv) {
    std::unique_ptr<Ggml> ggml;
    std::vector<Type> types;
    int64_t mib = 8, cols = 4096;
    const auto number = [](const char* text) {
        const int64_t n = std::strtoll(text, nullptr, 10);
        if (n > 0 && n <= 65536) return n;
        std::fprintf(stderr, "%s is no number from 1 to 65536.\n", text);
        std::exit(2);
    };
    for (int i = 1; i < argc; i++) {
        if (std::string_view(argv[i]) == "--ggml" && i + 1 < argc) {
            ggml = std::make_unique<Ggml>(argv[++i]);
        } else if (std::string_view(argv[i]) == "--mib" && i + 1 < argc) {
            mib = number(argv[++i]);
        } else if (std::string_view(argv[i]) == "--cols" && i + 1 < argc) {
            cols = number(argv[++i]);
        } else if (const TypeInfo* info = find_type(std::string_view(argv[i]))) {
            types.push_back(info->type);
        } else {
            std::fprintf(stderr, "%s is no tensor type.\n", argv[i]);
            return 2;
        }
    }
    if (types.empty())
        types = {Type::F32,   Type::F16,    Type::BF16,    Type::Q8_0,  Type::Q4_0,  Type::Q4_1,
                 Type::Q5_0,  Type::Q5_1,   Type::Q6_K,    Type::Q5_K,  Type::Q4_K,  Type::Q3_K,
                 Type::Q2_K,  Type::IQ4_NL, Type::IQ4_XS,  Type::MXFP4, Type::IQ3_S, Type::IQ3_XXS,
                 Type::IQ2_S, Type::IQ2_XS, Type::IQ2_XXS, Type::IQ1_M, Type::IQ1_S};
    const Kernels& kernels = select_kernels();
    std::printf("%s, one core: int8 peak %.0f GOPS\n", kernels.name, int8_peak(kernels) * 1e-9);
    std::printf("weights GB/s%s%s, by activation rows:\nrows    ", " and share of the peak",
                ggml ? ", times as fast as ggml" : "");
    for (const int64_t n : kRows)
        std::printf(" |%6lld%s%s", static_cast<long long>(n), n > 1 ? "     " : "", ggml ? "       " : "");
    std::printf("\n");
    Timer timer(kernels, ggml.get(), mib << 20, cols);
    for (const Type type : types) timer.print(type);
}
