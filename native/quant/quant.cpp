// Dispatch, checks and threads around the per-type codecs.
#include "quant/quant.h"

#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "core/error.h"
#include "quant/codec.h"

namespace hy3 {
namespace {

template <size_t n>
const Codec* find_in(const Codec (&codecs)[n], Type type) {
    for (const Codec& codec : codecs)
        if (codec.type == type) return &codec;
    return nullptr;
}

const Codec* find_codec(Type type) {
    const Codec* codec = find_in(kFloatCodecs, type);
    if (codec == nullptr) codec = find_in(kLegacyCodecs, type);
    if (codec == nullptr) codec = find_in(kKCodecs, type);
    if (codec == nullptr) codec = find_in(kIq4Codecs, type);
    if (codec == nullptr) codec = find_in(kMxfp4Codecs, type);
    if (codec == nullptr) codec = find_in(kIqCodecs, type);
    return codec;
}

const Codec& reader_of(Type type) {
    const Codec* codec = find_codec(type);
    if (codec == nullptr)
        fail(Status::unsupported, "Type ", type_name(type),
             " cannot be converted to float32. Only float and quantized weights can.");
    return *codec;
}

const Codec& writer_of(Type type) {
    const Codec* codec = find_codec(type);
    if (codec == nullptr || codec->write == nullptr)
        fail(Status::unsupported, "Type ", type_name(type),
             " can be read but not written. Choose one of f32, f16, bf16, q8_0, q6_k, q5_k, q4_k, q3_k, "
             "q2_k, q4_0, "
             "iq4_nl, iq4_xs, mxfp4.");
    return *codec;
}

// NaN fails every comparison, so one test a value finds NaN, infinity and what the type cannot hold.
void check_row(const float* row, int64_t cols, float limit, Type type, int64_t row_index) {
    int64_t good = 0;
    for (int64_t c = 0; c < cols; ++c) good += std::fabs(row[c]) <= limit ? 1 : 0;
    if (good == cols) return;
    int64_t c = 0;
    while (std::fabs(row[c]) <= limit) ++c;
    if (!std::isfinite(row[c]))
        fail(Status::invalid_argument, "Row ", row_index, ", column ", c, " is ",
             std::isnan(row[c]) ? "NaN" : "infinite",
             ". The weights are damaged: download or export them again.");
    fail(Status::invalid_argument, "Row ", row_index, ", column ", c, " is ", row[c], ", too large for type ",
         type_name(type), " (at most ", limit, "). Keep this tensor at bf16 or f32.");
}

// The same for rows of a float type that are to be copied.
void check_rows(Type type, const uint8_t* src, int64_t begin, int64_t end, int64_t cols) {
    const Codec& codec = *find_in(kFloatCodecs, type);
    const uint64_t stride = row_bytes(type, static_cast<uint64_t>(cols));
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
        codec.read(src + static_cast<uint64_t>(r) * stride, row.data(), cols);
        check_row(row.data(), cols, FLT_MAX, type, r);
    }
}

void check_importance(const float* importance, int64_t cols) {
    if (importance == nullptr) return;
    for (int64_t c = 0; c < cols; ++c)
        if (!(importance[c] >= 0.0f) || !std::isfinite(importance[c]))
            fail(Status::invalid_argument, "The importance of column ", c, " is ", importance[c],
                 ". Importances are finite and not negative: compute them again with `hy3 imatrix`.");
}

void check_shape(int64_t rows, int64_t cols) {
    if (rows < 0 || cols < 0)
        fail(Status::invalid_argument, "A matrix of ", rows, " x ", cols,
             " makes no sense. Check the shape.");
}

// Calls work(i) for i in 0..n-1 from several threads. If calls fail, throws what the one with the lowest i
// threw.
template <typename Work>
void parallel_for(int64_t n, int threads, const Work& work) {
    std::atomic<int64_t> next{0}, failed_at{n};
    std::exception_ptr error;
    std::mutex mutex;
    const auto run = [&] {
        for (int64_t i = next++; i < failed_at; i = next++) {
            try {
                work(i);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (i < failed_at) {
                    failed_at = i;
                    error = std::current_exception();
                }
            }
        }
    };
    std::vector<std::thread> pool;
    struct Join {
        std::vector<std::thread>& pool;
        ~Join() {
            for (std::thread& t : pool) t.join();
        }
    };
    {
        const Join join{pool};
        const int64_t useful = threads < n ? threads : n;
        for (int64_t t = 1; t < useful; ++t) pool.emplace_back(run);
        run();
    }
    if (error) std::rethrow_exception(error);
}

// Rows a thread takes at a time: enough to hide the hand-over, few enough that a small matrix still spreads.
int64_t rows_per_step(int64_t cols) {
    constexpr int64_t kElements = 1 << 16;
    return cols >= kElements ? 1 : kElements / (cols > 0 ? cols : 1);
}

}  // namespace

void dequantize(Type type, const void* src, float* dst, int64_t n) {
    const Codec& codec = reader_of(type);
    check_shape(1, n);
    row_bytes(type, static_cast<uint64_t>(n));
    codec.read(src, dst, n / type_info(type).block);
}

void quantize(Type type, const float* src, void* dst, int64_t rows, int64_t cols, const float* importance) {
    const Codec& codec = writer_of(type);
    check_shape(rows, cols);
    const uint64_t stride = row_bytes(type, static_cast<uint64_t>(cols));
    check_importance(importance, cols);
    auto* out = static_cast<uint8_t*>(dst);
    for (int64_t r = 0; r < rows; ++r) {
        check_row(src + r * cols, cols, codec.limit, type, r);
        codec.write(src + r * cols, out + static_cast<uint64_t>(r) * stride, cols, importance);
    }
}

void convert_rows(Type src_type, const void* src, Type dst_type, void* dst, int64_t rows, int64_t cols,
                  const float* importance, int threads) {
    check_shape(rows, cols);
    if (threads < 1)
        fail(Status::invalid_argument, "Cannot convert with ", threads, " threads. Use at least 1.");
    const uint64_t src_stride = row_bytes(src_type, static_cast<uint64_t>(cols));
    const uint64_t dst_stride = row_bytes(dst_type, static_cast<uint64_t>(cols));
    const auto* in = static_cast<const uint8_t*>(src);
    auto* out = static_cast<uint8_t*>(dst);
    const int64_t step = rows_per_step(cols);
    const auto each_step = [&](const auto& work) {
        parallel_for((rows + step - 1) / step, threads, [&](int64_t chunk) {
            work(chunk * step, (chunk + 1) * step < rows ? (chunk + 1) * step : rows);
        });
    };
    if (src_type == dst_type) {
        each_step([&](int64_t begin, int64_t end) {
            if (find_in(kFloatCodecs, src_type) != nullptr) check_rows(src_type, in, begin, end, cols);
            std::memcpy(out + static_cast<uint64_t>(begin) * src_stride,
                        in + static_cast<uint64_t>(begin) * src_stride,
                        static_cast<uint64_t>(end - begin) * src_stride);
        });
        return;
    }
    const Codec& reader = reader_of(src_type);
    const Codec& writer = writer_of(dst_type);
    check_importance(importance, cols);
    each_step([&](int64_t begin, int64_t end) {
        std::vector<float> row(static_cast<size_t>(cols));
        for (int64_t r = begin; r < end; ++r) {
            reader.read(in + static_cast<uint64_t>(r) * src_stride, row.data(),
                        cols / type_info(src_type).block);
            check_row(row.data(), cols, writer.limit, dst_type, r);
            writer.write(row.data(), out + static_cast<uint64_t>(r) * dst_stride, cols, importance);
        }
    });
}

}  // namespace hy3
