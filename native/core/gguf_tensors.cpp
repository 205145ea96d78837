// The tensor table of a GGUF file, and where each tensor's bytes lie.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/gguf_reader.h"

namespace hy3 {

namespace {

template <typename... Args>
[[noreturn]] void bad_tensor(const GgufPart& part, std::string_view name, const Args&... what) {
    fail(Status::format, part.path(), ": tensor '", printable(name), "' ", what...,
         ". The file is incomplete or damaged: download it again.");
}

std::string_view take_name(GgufPart& part, uint64_t index) {
    const uint64_t length = part.cursor.take<uint64_t>({"the length of a tensor's name"});
    if (length == 0 || length > max_tensor_name_bytes) {
        fail(Status::format, part.path(), ": tensor ", index, " has a name of ", length, " bytes; 1 to ",
             max_tensor_name_bytes, " are allowed. The file is damaged: download it again.");
    }
    const std::string_view name = part.cursor.take_bytes(length, {"the name of a tensor"});
    if (!is_utf8(name) || name.find('\0') != name.npos)
        bad_tensor(part, name, "has a name that is not UTF-8 text");
    return name;
}

Shape take_shape(GgufPart& part, std::string_view name) {
    const uint32_t n = part.cursor.take<uint32_t>({"the number of dimensions of tensor", name});
    if (n < 1 || n > max_dims)
        bad_tensor(part, name, "has ", n, " dimensions; 1 to ", max_dims, " are allowed");
    uint64_t dims[max_dims];
    uint64_t elements = 1;
    bool overflow = false;
    for (uint32_t i = 0; i < n; i++) {
        dims[i] = part.cursor.take<uint64_t>({"the shape of tensor", name});
        overflow |= __builtin_mul_overflow(elements, dims[i], &elements);
    }
    const Shape shape(dims, n);
    if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) {
        bad_tensor(part, name, "has the shape ", shape.text(), ", with a dimension of 0");
    }
    // A row of 2^60 elements overflows no size computed from it, whatever the type; no file holds as many.
    if (overflow || elements >> 60)
        bad_tensor(part, name, "has the shape ", shape.text(), ", more than any file holds");
    return shape;
}

Type take_type(GgufPart& part, std::string_view name) {
    const uint32_t id = part.cursor.take<uint32_t>({"the type of tensor", name});
    const TypeInfo* info = find_type(id);
    if (!info || info->type == Type::Q8_0_HY3) {
        fail(Status::unsupported, part.path(), ": tensor '", printable(name), "' has the unknown type ", id,
             ". Use a file of another type (hy3 inspect lists them), or convert the model again.");
    }
    return info->type;
}

uint64_t align_up(uint64_t n, uint64_t alignment) {
    return (n + alignment - 1) / alignment * alignment;
}

// What follows the number that `text` begins with; nothing when it begins with none.
std::optional<std::string_view> after_number(std::string_view text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (digits == 0) return std::nullopt;
    return text.substr(digits);
}

// What surrounds the expert's number in the original engine's names.
constexpr std::pair<std::string_view, std::string_view> single_expert[] = {
    {".ffn_gate_exps.", ".gate_proj.weight"},
    {".ffn_up_exps.", ".up_proj.weight"},
    {".ffn_down_exps.", ".down_proj.weight"},
};

// blk.N.ffn_{gate,up,down}_exps.E.{gate,up,down}_proj.weight: one tensor per expert, as only the original
// engine has.
bool is_single_expert(std::string_view name) {
    if (!name.starts_with("blk.")) return false;
    const auto rest = after_number(name.substr(4));
    if (!rest) return false;
    for (const auto& [head, tail] : single_expert) {
        if (rest->starts_with(head)) return after_number(rest->substr(head.size())) == tail;
    }
    return false;
}

// How the room that each Q8_0 tensor has before the next one compares with the two sizes its blocks may have.
struct BlockEvidence {
    bool all_34 = true;       // every room is just what 34-byte blocks need
    bool all_36 = true;       // or 36-byte ones
    bool conclusive = false;  // some room tells the two apart
};

class Placement {
  public:
    Placement(const std::vector<GgufPart>& parts, std::vector<TensorInfo>& tensors,
              std::vector<uint32_t>& by_place)
        : parts_(parts), tensors_(tensors), by_place_(by_place) {
        by_place.resize(tensors.size());
        std::iota(by_place.begin(), by_place.end(), 0u);
        std::sort(by_place.begin(), by_place.end(), [&](uint32_t a, uint32_t b) {
            return std::pair(tensors[a].file, tensors[a].offset) <
                   std::pair(tensors[b].file, tensors[b].offset);
        });
    }

    Dialect dialect() const {
        const bool named = std::any_of(tensors_.begin(), tensors_.end(),
                                       [](const TensorInfo& t) { return is_single_expert(t.name); });
        const BlockEvidence evidence = q8_0_evidence();
        const bool sized = evidence.conclusive && evidence.all_36;
        return named || sized ? Dialect::hy3_original : Dialect::standard;
    }

    // The original engine's names with standard blocks: somebody has rewritten the data. Sizes decide.
    bool has_wide_q8_0() const {
        const BlockEvidence evidence = q8_0_evidence();
        return !(evidence.conclusive && evidence.all_34);
    }

    // Offsets become positions in the file; bounds and overlaps are checked on the way.
    void place() {
        for (size_t i = 0; i < by_place_.size(); i++) {
            TensorInfo& tensor = tensors_[by_place_[i]];
            const GgufPart& part = parts_[tensor.file];
            const uint64_t room = part.file->size() - part.data_start;
            tensor.nbytes = size_of(tensor, tensor.type);
            if (tensor.offset % part.alignment != 0) {
                bad_tensor(part, tensor.name, "begins at offset ", tensor.offset,
                           ", not a multiple of the alignment ", part.alignment);
            }
            if (tensor.offset > room || tensor.nbytes > room - tensor.offset) {
                bad_tensor(part, tensor.name, "of ", tensor.nbytes, " bytes at offset ", tensor.offset,
                           " reaches past the end of the data (", room, " bytes)");
            }
            tensor.offset += part.data_start;
            tensor.data = part.file->data() + tensor.offset;
            if (i == 0) continue;
            const TensorInfo& before = tensors_[by_place_[i - 1]];
            if (before.file == tensor.file && tensor.offset - before.offset < before.nbytes) {
                bad_tensor(part, tensor.name, "overlaps tensor '", printable(before.name), "' (byte ",
                           tensor.offset, " is within ", before.offset, " to ", before.offset + before.nbytes,
                           ")");
            }
        }
    }

  private:
    static uint64_t size_of(const TensorInfo& tensor, Type type) {
        const TypeInfo& info = type_info(type);
        return tensor.shape.elements() / info.block * info.bytes;
    }

    BlockEvidence q8_0_evidence() const {
        BlockEvidence evidence;
        for (size_t i = 0; i < by_place_.size(); i++) {
            const TensorInfo& tensor = tensors_[by_place_[i]];
            if (tensor.type != Type::Q8_0) continue;
            const GgufPart& part = parts_[tensor.file];
            const bool last = i + 1 == by_place_.size() || tensors_[by_place_[i + 1]].file != tensor.file;
            const uint64_t end = last ? align_up(part.file->size() - part.data_start, part.alignment)
                                      : tensors_[by_place_[i + 1]].offset;
            const uint64_t room = end - std::min(end, tensor.offset);
            const uint64_t narrow = align_up(size_of(tensor, Type::Q8_0), part.alignment);
            const uint64_t wide = align_up(size_of(tensor, Type::Q8_0_HY3), part.alignment);
            evidence.all_34 &= room == narrow;
            evidence.all_36 &= room == wide;
            evidence.conclusive |= narrow != wide;
        }
        return evidence;
    }

    const std::vector<GgufPart>& parts_;
    std::vector<TensorInfo>& tensors_;
    std::vector<uint32_t>& by_place_;
};

}  // namespace

void read_tensors(GgufPart& part, uint32_t file, std::vector<TensorInfo>& tensors) {
    for (uint64_t i = 0; i < part.n_tensors; i++) {
        TensorInfo tensor;
        tensor.name = take_name(part, i);
        tensor.shape = take_shape(part, tensor.name);
        tensor.type = take_type(part, tensor.name);
        tensor.offset = part.cursor.take<uint64_t>({"the offset of tensor", tensor.name});
        tensor.file = file;
        const TypeInfo& info = type_info(tensor.type);
        if (tensor.shape.row_length() % info.block != 0) {
            bad_tensor(part, tensor.name, "has rows of ", tensor.shape.row_length(), " elements, which the ",
                       info.block, " of a block of ", info.name, " do not divide");
        }
        tensors.push_back(tensor);
    }
    // A file of metadata alone may end before its (empty) data section would begin.
    part.data_start = align_up(part.cursor.position(), part.alignment);
    if (part.data_start > part.file->size()) {
        if (part.n_tensors != 0) {
            fail(Status::format, part.path(),
                 ": ends before the tensors' data. The file is incomplete: download it again.");
        }
        part.data_start = part.file->size();
    }
}

Dialect place_tensors(const std::vector<GgufPart>& parts, std::vector<TensorInfo>& tensors,
                      std::vector<uint32_t>& by_place) {
    Placement placement(parts, tensors, by_place);
    const Dialect dialect = placement.dialect();
    if (dialect == Dialect::hy3_original && placement.has_wide_q8_0()) {
        for (TensorInfo& tensor : tensors) {
            if (tensor.type == Type::Q8_0) tensor.type = Type::Q8_0_HY3;
        }
    }
    placement.place();
    return dialect;
}

}  // namespace hy3
