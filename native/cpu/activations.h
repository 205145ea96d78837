// Activations in the form a product needs, and buffers that keep their memory from step to step.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "cpu/kernels.h"

namespace hy3::cpu {

// Uninitialised, 64-byte aligned, growing memory.
template <typename T>
class Array {
  public:
    T* get(int64_t count) {
        if (count > capacity_) {
            data_.reset();
            capacity_ = 0;
            data_.reset(static_cast<T*>(
                ::operator new(static_cast<size_t>(count) * sizeof(T), std::align_val_t{64})));
            capacity_ = count;
        }
        return data_.get();
    }
    T* data() const { return data_.get(); }

  private:
    struct Free {
        void operator()(T* block) const noexcept { ::operator delete(block, std::align_val_t{64}); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t capacity_ = 0;
};

// Memory of QuantizedRows.
class QuantizedArray {
  public:
    // Room for n rows of `cols`, for quantize() to fill. The stride is never a large power of two, so
    // that rows do not fall on the same sets of the cache.
    const QuantizedRows& get(int64_t n, int64_t cols) {
        const int64_t stride = (cols + 63) / 64 * 64 + 64, groups = n * stride / kGroup;
        rows_ = {cols,
                 stride,
                 q_.get(n * stride),
                 scale_.get(groups),
                 sum32_.get(groups),
                 sum16_.get(2 * groups),
                 fsum32_.get(groups),
                 fsum16_.get(2 * groups)};
        return rows_;
    }
    const QuantizedRows& rows() const { return rows_; }

  private:
    QuantizedRows rows_;
    Array<int8_t> q_;
    Array<float> scale_, fsum32_, fsum16_;
    Array<int32_t> sum32_, sum16_;
};

}  // namespace hy3::cpu
