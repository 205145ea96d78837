// hy3.h: errors, version, backends, tensor types.
#include <array>
#include <thread>
#include <vector>

#include "api/handles.h"
#include "core/backend.h"
#include "cpu/kernels.h"
#include "cpu/probe.h"
#include "quant/quant.h"
#include "quant/types.h"

namespace hy3::api {
namespace {

thread_local std::string last_error;

constexpr std::array all_types = {Type::F32,     Type::F16,    Type::BF16,  Type::Q4_0,     Type::Q4_1,
                                  Type::Q5_0,    Type::Q5_1,   Type::Q8_0,  Type::Q2_K,     Type::Q3_K,
                                  Type::Q4_K,    Type::Q5_K,   Type::Q6_K,  Type::IQ1_S,    Type::IQ1_M,
                                  Type::IQ2_XXS, Type::IQ2_XS, Type::IQ2_S, Type::IQ3_XXS,  Type::IQ3_S,
                                  Type::IQ4_NL,  Type::IQ4_XS, Type::MXFP4, Type::Q8_0_HY3, Type::I8,
                                  Type::I16,     Type::I32,    Type::I64,   Type::F64};

const std::vector<BackendInfo>& backends() {
    static const std::vector<BackendInfo> all = available_backends();
    return all;
}

hy3_type_info describe(const TypeInfo& info) {
    return {static_cast<uint32_t>(info.type),
            info.name,
            info.block,
            info.bytes,
            info.quantizable,
            info.dequantizable};
}

const TypeInfo& known_type(uint32_t id) {
    const TypeInfo* info = find_type(id);
    if (info == nullptr) fail(Status::invalid_argument, "There is no tensor type ", id, ".");
    return *info;
}

void check_size(const TypeInfo& type, int64_t rows, int64_t cols, size_t nbytes, const char* what) {
    require(rows >= 0 && cols >= 0, "Rows and columns cannot be negative.");
    const uint64_t row = row_bytes(type.type, static_cast<uint64_t>(cols));
    if ((rows > 0 && row > SIZE_MAX / static_cast<uint64_t>(rows)) ||
        row * static_cast<uint64_t>(rows) != nbytes)
        fail(Status::invalid_argument, "The ", what, " buffer has ", nbytes, " bytes, and ", rows,
             " rows of ", cols, " ", type.name, " values take ", row, " each.");
}

}  // namespace

hy3_status record(Status status, const char* message) noexcept {
    try {
        last_error = message;
    } catch (...) {
        last_error.clear();  // no memory even for the message
    }
    return static_cast<hy3_status>(status);
}

}  // namespace hy3::api

using namespace hy3::api;

extern "C" {

const char* hy3_last_error(void) {
    return last_error.c_str();
}

const char* hy3_version(void) {
    return HY3_VERSION;
}

size_t hy3_backend_count(void) {
    return backends().size();
}

hy3_status hy3_backend(size_t index, hy3_backend_info* out) {
    return guard([&] {
        require(index < backends().size(), "There is no backend of that index.");
        const hy3::BackendInfo& info = backends()[index];
        *out = {info.name.c_str(), info.device.c_str(), info.memory};
    });
}

size_t hy3_isa_count(void) {
    return hy3::cpu::usable_kernels().size();
}

const char* hy3_isa(size_t index) {
    return index < hy3_isa_count() ? hy3::cpu::usable_kernels()[index]->name : nullptr;
}

hy3_status hy3_current_isa(const char** out) {
    return guard([&] { *out = hy3::cpu::select_kernels().name; });
}

hy3_status hy3_measure_machine(int threads, uint64_t span, hy3_abort_fn abort, void* user,
                               hy3_machine_speed* out) {
    return guard([&] {
        require(threads >= 0 && threads <= 1024, "threads is out of range. Give 1 to 1024, or 0 for all.");
        require(span >= 16ull << 20 && span <= 64ull << 30, "span is out of range. Give 16 MiB to 64 GiB.");
        CallbackAbort check(abort, user);
        const hy3::cpu::MachineSpeed speed =
            hy3::cpu::measure_machine(threads, static_cast<int64_t>(span), check);
        *out = {speed.read_bytes, speed.int8_ops};
    });
}

size_t hy3_type_count(void) {
    return all_types.size();
}

hy3_status hy3_type(size_t index, hy3_type_info* out) {
    return guard([&] {
        require(index < all_types.size(), "There is no tensor type of that index.");
        *out = describe(hy3::type_info(all_types[index]));
    });
}

hy3_status hy3_find_type(const char* name, hy3_type_info* out) {
    return guard([&] {
        const hy3::TypeInfo* info = hy3::find_type(std::string_view(name));
        if (info == nullptr)
            hy3::fail(hy3::Status::invalid_argument, "There is no tensor type \"", name,
                      "\". Known are f32, f16, bf16, ", "q8_0, q4_k and the other names of the GGUF types.");
        *out = describe(*info);
    });
}

hy3_status hy3_dequantize(uint32_t type, const void* src, size_t nbytes, float* dst, int64_t n) {
    return guard([&] {
        const hy3::TypeInfo& info = known_type(type);
        check_size(info, 1, n, nbytes, "source");
        hy3::dequantize(info.type, src, dst, n);
    });
}

hy3_status hy3_convert_rows(uint32_t src_type, const void* src, size_t src_nbytes, uint32_t dst_type,
                            void* dst, size_t dst_nbytes, int64_t rows, int64_t cols, const float* importance,
                            int threads) {
    return guard([&] {
        const hy3::TypeInfo& from = known_type(src_type);
        const hy3::TypeInfo& to = known_type(dst_type);
        check_size(from, rows, cols, src_nbytes, "source");
        check_size(to, rows, cols, dst_nbytes, "destination");
        require(threads >= 0, "The number of threads cannot be negative. Give 0 for all cores.");
        const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
        hy3::convert_rows(from.type, src, to.type, dst, rows, cols, importance,
                          threads == 0 ? cores : threads);
    });
}

}  // extern "C"
