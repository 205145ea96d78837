// hy3.h: GGUF files and headers.
#include <cstring>

#include "api/handles.h"

using namespace hy3::api;

namespace {

// Scalars are handed out by address, so they must be stored somewhere that lives as long as the file: the
// variant's own storage, whose alternatives all begin at its address.
const void* scalar_address(const hy3::GgufValue& value) {
    return std::visit([](const auto& x) { return static_cast<const void*>(&x); }, value);
}

hy3_value describe(const hy3::GgufValue& value) {
    if (const auto* array = std::get_if<hy3::GgufArray>(&value)) {
        const bool plain = hy3::kind_bytes(array->kind) > 0;
        return {true, static_cast<hy3_kind>(array->kind), array->count,
                plain ? array->bytes.data() : nullptr};
    }
    const bool text = std::holds_alternative<std::string_view>(value);
    return {false, static_cast<hy3_kind>(hy3::kind_of(value)), 1, text ? nullptr : scalar_address(value)};
}

template <typename T>
hy3::GgufValue scalar(const void* data) {
    T value;
    std::memcpy(&value, data, sizeof value);
    return value;
}

hy3::GgufValue read_scalar(const hy3_value& value) {
    switch (value.element) {
        case HY3_KIND_U8:
            return scalar<uint8_t>(value.data);
        case HY3_KIND_I8:
            return scalar<int8_t>(value.data);
        case HY3_KIND_U16:
            return scalar<uint16_t>(value.data);
        case HY3_KIND_I16:
            return scalar<int16_t>(value.data);
        case HY3_KIND_U32:
            return scalar<uint32_t>(value.data);
        case HY3_KIND_I32:
            return scalar<int32_t>(value.data);
        case HY3_KIND_F32:
            return scalar<float>(value.data);
        case HY3_KIND_BOOL:
            return *static_cast<const uint8_t*>(value.data) != 0;
        case HY3_KIND_STR:
            return view(*static_cast<const hy3_str*>(value.data));
        case HY3_KIND_U64:
            return scalar<uint64_t>(value.data);
        case HY3_KIND_I64:
            return scalar<int64_t>(value.data);
        case HY3_KIND_F64:
            return scalar<double>(value.data);
        case HY3_KIND_ARRAY:
            break;
    }
    hy3::fail(hy3::Status::invalid_argument, "A metadata value is of an unknown kind.");
}

}  // namespace

extern "C" {

hy3_status hy3_gguf_open(const char* path, bool use_mmap, hy3_gguf** out) {
    return guard([&] { *out = new hy3_gguf{hy3::Gguf::open(path, use_mmap)}; });
}

void hy3_gguf_free(hy3_gguf* file) {
    delete file;
}

size_t hy3_gguf_file_count(const hy3_gguf* file) {
    return file->file->paths().size();
}

hy3_status hy3_gguf_path(const hy3_gguf* file, size_t index, hy3_str* out) {
    return guard([&] {
        require(index < file->file->paths().size(), "There is no file of that index.");
        *out = view(file->file->paths()[index]);
    });
}

bool hy3_gguf_is_original(const hy3_gguf* file) {
    return file->file->dialect() == hy3::Dialect::hy3_original;
}

uint32_t hy3_gguf_alignment(const hy3_gguf* file) {
    return file->file->alignment();
}

size_t hy3_gguf_key_count(const hy3_gguf* file) {
    return file->file->metadata().size();
}

hy3_status hy3_gguf_key(const hy3_gguf* file, size_t index, hy3_str* key, hy3_value* value) {
    return guard([&] {
        require(index < file->file->metadata().size(), "There is no key of that index.");
        const hy3::KeyValue& entry = file->file->metadata()[index];
        *key = view(entry.key);
        *value = describe(entry.value);
    });
}

hy3_status hy3_gguf_strings(const hy3_gguf* file, size_t index, void (*visit)(void* user, hy3_str text),
                            void* user) {
    return guard([&] {
        require(index < file->file->metadata().size(), "There is no key of that index.");
        const hy3::GgufValue& value = file->file->metadata()[index].value;
        if (const auto* text = std::get_if<std::string_view>(&value)) {
            visit(user, view(*text));
        } else if (const auto* array = std::get_if<hy3::GgufArray>(&value)) {
            for (const std::string_view text_of : array->strings()) visit(user, view(text_of));
        }
    });
}

size_t hy3_gguf_tensor_count(const hy3_gguf* file) {
    return file->file->tensors().size();
}

hy3_status hy3_gguf_tensor(const hy3_gguf* file, size_t index, hy3_tensor_info* out) {
    return guard([&] {
        require(index < file->file->tensors().size(), "There is no tensor of that index.");
        const hy3::TensorInfo& info = file->file->tensors()[index];
        *out = {view(info.name),   static_cast<uint32_t>(info.type),
                info.shape.size(), {1, 1, 1, 1},
                info.nbytes,       info.offset,
                info.file,         info.data};
        for (uint32_t i = 0; i < info.shape.size(); i++) out->shape[i] = info.shape[i];
    });
}

hy3_status hy3_header_new(uint32_t alignment, hy3_header** out) {
    return guard([&] { *out = new hy3_header{hy3::GgufHeader(alignment), {}}; });
}

void hy3_header_free(hy3_header* header) {
    delete header;
}

hy3_status hy3_header_add_key(hy3_header* header, hy3_str key, hy3_value value) {
    return guard([&] {
        if (!value.is_array) {
            header->header.add(view(key), read_scalar(value));
        } else if (value.element == HY3_KIND_STR) {
            std::vector<std::string_view> strings;
            const auto* all = static_cast<const hy3_str*>(value.data);
            for (uint64_t i = 0; i < value.count; i++) strings.push_back(view(all[i]));
            header->header.add_strings(view(key), strings);
        } else {
            header->header.add_numbers(view(key), static_cast<hy3::GgufKind>(value.element), value.data,
                                       value.count);
        }
    });
}

hy3_status hy3_header_add_tensor(hy3_header* header, hy3_str name, uint32_t type, const uint64_t* shape,
                                 uint32_t n_dims) {
    return guard([&] {
        const hy3::TypeInfo* info = hy3::find_type(type);
        require(info != nullptr, "A tensor to be written is of an unknown type.");
        require(n_dims >= 1 && n_dims <= hy3::max_dims, "A tensor has 1 to 4 dimensions.");
        header->header.add_tensor(view(name), info->type, hy3::Shape(shape, n_dims));
    });
}

hy3_status hy3_header_bytes(hy3_header* header, hy3_str* out) {
    return guard([&] {
        header->bytes = header->header.bytes();
        *out = view(header->bytes);
    });
}

hy3_status hy3_header_offset(const hy3_header* header, size_t tensor, uint64_t* out) {
    return guard([&] {
        require(tensor < header->header.n_tensors(), "There is no tensor of that index.");
        *out = header->header.offset(tensor);
    });
}

uint64_t hy3_header_data_bytes(const hy3_header* header) {
    return header->header.data_bytes();
}

}  // extern "C"
