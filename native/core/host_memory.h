// Memory operations of the backends that compute in host memory.
#pragma once

#include <cstddef>
#include <cstring>
#include <new>

#include "core/backend.h"
#include "core/error.h"

namespace hy3 {

class HostBackend : public Backend {
  public:
    std::byte* allocate(size_t bytes) override {
        void* block = ::operator new(bytes, alignment, std::nothrow);
        if (block == nullptr)
            fail(Status::out_of_memory, "No memory for ", bytes,
                 " bytes. Use a smaller context or a smaller file.");
        return static_cast<std::byte*>(block);
    }
    void release(std::byte* block) noexcept override { ::operator delete(block, alignment); }
    void upload(void* to, const void* host, size_t bytes) override { std::memcpy(to, host, bytes); }
    void download(void* host, const void* from, size_t bytes) override { std::memcpy(host, from, bytes); }
    void copy(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }

  private:
    static constexpr std::align_val_t alignment{64};  // a cache line, and the widest vector
};

}  // namespace hy3
