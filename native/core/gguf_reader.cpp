// Opens GGUF files: header, metadata and the parts of a split model. Layout: the GGUF specification,
//   "GGUF" u32 version, u64 n_tensors, u64 n_keys, n_keys x (key, kind, value), n_tensors x tensor info,
//   data.
#include "core/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/gguf_writer.h"

namespace hy3 {

namespace {

constexpr uint64_t min_key_bytes = 8 + 1 + 4 + 1;  // length, a one-byte key, kind, a bool
constexpr uint64_t min_tensor_bytes =
    8 + 1 + 4 + 8 + 4 + 8;  // length, a one-byte name, n_dims, one dim, type, offset
constexpr uint32_t default_alignment = 32;

// What people hand over instead of a GGUF file, told apart by its first bytes.
const char* other_format(const MappedFile& file) {
    const std::string_view start(reinterpret_cast<const char*>(file.data()),
                                 std::min<uint64_t>(file.size(), 16));
    if (start.starts_with("version https://"))
        return "It is a Git LFS pointer: fetch the file itself (git lfs pull).";
    if (start.size() > 8 && start[8] == '{')
        return "It looks like safetensors: convert it first (hy3 convert).";
    if (start.starts_with("PK"))
        return "It looks like a PyTorch or zip file: convert it first (hy3 convert).";
    return "Give a GGUF file, or convert the model first (hy3 convert).";
}

void read_version(GgufPart& part) {
    const std::string_view magic = part.cursor.take_bytes(4, {"the magic number"});
    if (magic != "GGUF" && magic != "FUGG") {
        fail(Status::format, part.path(), ": is not a GGUF file (it begins with '", printable(magic), "'). ",
             other_format(*part.file));
    }
    part.version = part.cursor.take<uint32_t>({"the version"});
    // A big-endian writer swaps the version, and some the magic: version 3 then reads as 0x03000000.
    if (magic == "FUGG" || (part.version != 0 && (part.version & 0xFFFF) == 0)) {
        fail(Status::unsupported, part.path(),
             ": is big-endian GGUF. Convert it with --endian little "
             "(gguf_convert_endian.py of the gguf package).");
    }
    if (part.version != 2 && part.version != 3) {
        fail(Status::unsupported, part.path(), ": is GGUF version ", part.version,
             "; versions 2 and 3 are read. ",
             part.version == 1 ? "Convert the model again."
                               : "The file is damaged, or newer than this program.");
    }
}

void check_array(GgufPart& part, GgufKind kind, uint64_t count, std::string_view key, uint32_t depth);

// Reads what stands before an array's elements.
GgufArray take_array_head(GgufPart& part, std::string_view key) {
    GgufArray array;
    array.kind = static_cast<GgufKind>(part.cursor.take<uint32_t>({"the element type of key", key}));
    array.count = part.cursor.take<uint64_t>({"the element count of key", key});
    return array;
}

std::string_view take_string(GgufPart& part, std::string_view key) {
    const uint64_t length = part.cursor.take<uint64_t>({"a string's length in key", key});
    return part.cursor.take_bytes(length, {"a string in key", key});
}

bool take_bool(GgufPart& part, std::string_view key) {
    const uint8_t byte = part.cursor.take<uint8_t>({"the value of key", key});
    if (byte > 1) {
        fail(Status::format, part.path(), ": key '", printable(key), "' holds a bool of value ", int{byte},
             "; 0 and 1 are allowed. The file is damaged: download it again.");
    }
    return byte == 1;
}

[[noreturn]] void unknown_kind(const GgufPart& part, std::string_view key, GgufKind kind) {
    fail(Status::format, part.path(), ": key '", printable(key), "' has the unknown value type ",
         static_cast<uint32_t>(kind), ". The file is damaged, or newer than this program.");
}

// Walks the elements and checks them; afterwards the cursor stands behind the last one.
void check_array(GgufPart& part, GgufKind kind, uint64_t count, std::string_view key, uint32_t depth) {
    const Reading reading{"the array in key", key};
    switch (kind) {
        case GgufKind::boolean:
            part.cursor.expect(count, 1, reading);
            for (uint64_t i = 0; i < count; i++) take_bool(part, key);
            return;
        case GgufKind::string:
            part.cursor.expect(count, sizeof(uint64_t), reading);
            for (uint64_t i = 0; i < count; i++) take_string(part, key);
            return;
        case GgufKind::array:
            if (depth == max_array_depth) {
                fail(Status::format, part.path(), ": key '", printable(key), "' nests arrays more than ",
                     max_array_depth, " deep. The file is damaged, or not a model.");
            }
            part.cursor.expect(count, sizeof(uint32_t) + sizeof(uint64_t), reading);
            for (uint64_t i = 0; i < count; i++) {
                const GgufArray inner = take_array_head(part, key);
                check_array(part, inner.kind, inner.count, key, depth + 1);
            }
            return;
        default:
            if (kind_bytes(kind) == 0) unknown_kind(part, key, kind);
            part.cursor.expect(count, kind_bytes(kind), reading);
            part.cursor.take_bytes(count * kind_bytes(kind), reading);
    }
}

GgufArray take_array(GgufPart& part, std::string_view key) {
    GgufArray array = take_array_head(part, key);
    const uint64_t start = part.cursor.position();
    check_array(part, array.kind, array.count, key, 1);
    array.bytes = {reinterpret_cast<const char*>(part.file->data()) + start,
                   static_cast<size_t>(part.cursor.position() - start)};
    return array;
}

GgufValue take_value(GgufPart& part, std::string_view key) {
    const Reading reading{"the value of key", key};
    const auto kind = static_cast<GgufKind>(part.cursor.take<uint32_t>({"the type of key", key}));
    switch (kind) {
        case GgufKind::u8:
            return part.cursor.take<uint8_t>(reading);
        case GgufKind::i8:
            return part.cursor.take<int8_t>(reading);
        case GgufKind::u16:
            return part.cursor.take<uint16_t>(reading);
        case GgufKind::i16:
            return part.cursor.take<int16_t>(reading);
        case GgufKind::u32:
            return part.cursor.take<uint32_t>(reading);
        case GgufKind::i32:
            return part.cursor.take<int32_t>(reading);
        case GgufKind::u64:
            return part.cursor.take<uint64_t>(reading);
        case GgufKind::i64:
            return part.cursor.take<int64_t>(reading);
        case GgufKind::f32:
            return part.cursor.take<float>(reading);
        case GgufKind::f64:
            return part.cursor.take<double>(reading);
        case GgufKind::boolean:
            return take_bool(part, key);
        case GgufKind::string:
            return take_string(part, key);
        case GgufKind::array:
            return take_array(part, key);
    }
    unknown_kind(part, key, kind);
}

std::string_view take_key(GgufPart& part, uint64_t index) {
    const uint64_t length = part.cursor.take<uint64_t>({"the length of a key"});
    if (length == 0 || length > max_name_bytes) {
        fail(Status::format, part.path(), ": key ", index, " of the metadata has a name of ", length,
             " bytes; 1 to ", max_name_bytes, " are allowed. The file is damaged: download it again.");
    }
    const std::string_view key = part.cursor.take_bytes(length, {"the name of a key"});
    if (!is_utf8(key) || key.find('\0') != key.npos) {
        fail(Status::format, part.path(), ": key '", printable(key),
             "' of the metadata is not UTF-8 text. "
             "The file is damaged: download it again.");
    }
    return key;
}

void index_keys(GgufPart& part) {
    auto& order = part.keys_by_name;
    const auto key = [&](uint32_t i) { return part.metadata[i].key; };
    order.resize(part.metadata.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    const auto twin = std::adjacent_find(order.begin(), order.end(),
                                         [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
    if (twin != order.end()) {
        fail(Status::format, part.path(), ": key '", printable(key(*twin)),
             "' stands twice in the metadata. "
             "The file is damaged, or its writer is broken: convert the model again.");
    }
}

// An integer key of the reader's own, within [low, high]; `otherwise` when absent.
int64_t own_key(const GgufPart& part, std::string_view key, int64_t low, int64_t high, int64_t otherwise) {
    const GgufValue* value = part.find(key);
    if (!value) return otherwise;
    const auto integer = as_integer(*value);
    if (!integer || *integer < low || *integer > high) {
        fail(Status::format, part.path(), ": key '", key, "' should be an integer from ", low, " to ", high,
             " but is ", integer ? cat(*integer) : describe_kind(*value),
             ". The file is damaged, or its writer is broken.");
    }
    return *integer;
}

uint32_t read_alignment(const GgufPart& part) {
    const auto value =
        static_cast<uint32_t>(own_key(part, "general.alignment", 8, max_alignment, default_alignment));
    if (!std::has_single_bit(value)) {
        fail(Status::format, part.path(), ": key 'general.alignment' is ", value,
             ", not a power of two. The file is damaged, or its writer is broken.");
    }
    return value;
}

// Before the tensor table is allocated: tensors do not overlap and each begins at a multiple of the
// alignment, so each but the last takes as much of the data section.
void check_room(const GgufPart& part) {
    if (part.n_tensors == 0) return;
    const uint64_t least = part.n_tensors * min_tensor_bytes + (part.n_tensors - 1) * part.alignment + 1;
    if (least > part.cursor.remaining()) {
        fail(Status::format, part.path(), ": the tensor table claims ", part.n_tensors,
             " tensors, which with their data take ", least, " bytes or more, but only ",
             part.cursor.remaining(), " are left. The file is incomplete or damaged: download it again.");
    }
}

}  // namespace

const GgufValue* GgufPart::find(std::string_view key) const {
    const auto less = [&](uint32_t i, std::string_view wanted) { return metadata[i].key < wanted; };
    const auto at = std::lower_bound(keys_by_name.begin(), keys_by_name.end(), key, less);
    return at == keys_by_name.end() || metadata[*at].key != key ? nullptr : &metadata[*at].value;
}

GgufPart read_part(const std::string& path, bool use_mmap) {
    GgufPart part(MappedFile::open(path, use_mmap));
    read_version(part);
    part.n_tensors = part.cursor.take<uint64_t>({"the number of tensors"});
    const uint64_t n_keys = part.cursor.take<uint64_t>({"the number of keys"});
    part.cursor.expect(n_keys, min_key_bytes, {"the metadata"});
    part.cursor.expect(part.n_tensors, min_tensor_bytes, {"the tensor table"});
    if (n_keys > max_keys || part.n_tensors > max_tensors) {
        fail(Status::format, path, ": claims ", n_keys, " keys and ", part.n_tensors, " tensors; at most ",
             max_keys, " and ", max_tensors, " are read. The file is damaged, or not a model.");
    }
    part.metadata.reserve(n_keys);
    for (uint64_t i = 0; i < n_keys; i++) {
        const std::string_view key = take_key(part, i);
        part.metadata.push_back({key, take_value(part, key)});
    }
    index_keys(part);
    part.alignment = read_alignment(part);
    check_room(part);
    return part;
}

namespace {

// The path of part `no` (from 0), given the path of part `own_no`; empty when that one is not named as it
// should be.
std::string sibling_path(const std::string& path, uint32_t own_no, uint32_t no, uint32_t count) {
    const std::string ending = split_path("", own_no, count);
    if (!path.ends_with(ending)) return "";
    return split_path(path.substr(0, path.size() - ending.size()), no, count);
}

// Opens the other parts of the split model whose first part is parts[0], if it is one.
void read_siblings(std::vector<GgufPart>& parts, bool use_mmap) {
    const std::string path = parts[0].path();
    const auto count = static_cast<uint32_t>(own_key(parts[0], "split.count", 0, max_splits, 1));
    if (count <= 1) return;
    const auto own_no = static_cast<uint32_t>(own_key(parts[0], "split.no", 0, count - 1, 0));
    const std::string first = sibling_path(path, own_no, 0, count);
    if (own_no != 0) {
        fail(Status::invalid_argument, path, ": is part ", own_no + 1, " of a model split into ", count,
             " files. Open the first part", first.empty() ? "" : ", ", first, ".");
    }
    if (first.empty()) {
        fail(Status::format, path, ": is the first part of a model split into ", count,
             " files, but its name does not end in ", split_path("", 0, count),
             ", so the others cannot be found. Rename it.");
    }
    std::vector<int64_t> said_totals{own_key(parts[0], "split.tensors.count", 0, INT32_MAX, -1)};
    for (uint32_t no = 1; no < count; no++) {
        const std::string sibling = sibling_path(path, 0, no, count);
        try {
            parts.push_back(read_part(sibling, use_mmap));
        } catch (const Error& error) {
            if (error.status() != Status::io) throw;
            fail(Status::io, error.what(), " It is part ", no + 1, " of ", count, " of ", path, ".");
        }
        GgufPart& part = parts.back();
        const int64_t said_no = own_key(part, "split.no", 0, max_splits, -1);
        const int64_t said_count = own_key(part, "split.count", 0, max_splits, -1);
        if (said_no != no || said_count != count) {
            fail(Status::format, sibling, ": should be part ", no + 1, " of ", count,
                 " by its name, but its keys say ",
                 said_no < 0 || said_count < 0 ? "nothing of parts"
                                               : cat("part ", said_no + 1, " of ", said_count),
                 ". Parts of different models are mixed up: download them again.");
        }
        said_totals.push_back(own_key(part, "split.tensors.count", 0, INT32_MAX, -1));
        std::vector<KeyValue>().swap(part.metadata);  // read for the keys above only
        std::vector<uint32_t>().swap(part.keys_by_name);
    }
    uint64_t total = 0;
    for (const GgufPart& part : parts) total += part.n_tensors;
    for (uint32_t no = 0; no < count; no++) {
        if (said_totals[no] >= 0 && said_totals[no] != static_cast<int64_t>(total)) {
            fail(Status::format, parts[no].path(), ": says that the ", count, " parts hold ", said_totals[no],
                 " tensors, but they hold ", total,
                 ". Parts of different models are mixed up: download them again.");
        }
    }
    if (total > max_tensors) {
        fail(Status::format, path, ": its parts hold ", total, " tensors; at most ", max_tensors,
             " are read. The files are damaged, or not a model.");
    }
}

}  // namespace

// Befriended by Gguf, to fill it.
class GgufReader {
  public:
    static std::shared_ptr<const Gguf> open(const std::string& path, bool use_mmap) {
        std::vector<GgufPart> parts;
        parts.push_back(read_part(path, use_mmap));
        read_siblings(parts, use_mmap);

        std::shared_ptr<Gguf> gguf(new Gguf);
        uint64_t total = 0;
        for (const GgufPart& part : parts) total += part.n_tensors;
        gguf->tensors_.reserve(total);
        for (uint32_t i = 0; i < parts.size(); i++) read_tensors(parts[i], i, gguf->tensors_);
        gguf->dialect_ = place_tensors(parts, gguf->tensors_, gguf->tensors_by_name_);
        for (const GgufPart& part : parts) {
            gguf->files_.push_back(part.file);
            gguf->paths_.push_back(part.path());
        }
        gguf->version_ = parts[0].version;
        gguf->alignment_ = parts[0].alignment;
        gguf->metadata_ = std::move(parts[0].metadata);
        gguf->keys_by_name_ = std::move(parts[0].keys_by_name);
        index_tensors(*gguf);
        return gguf;
    }

  private:
    static void index_tensors(Gguf& gguf) {
        auto& order = gguf.tensors_by_name_;
        const auto name = [&](uint32_t i) { return gguf.tensors_[i].name; };
        std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return name(a) < name(b); });
        const auto twin = std::adjacent_find(order.begin(), order.end(),
                                             [&](uint32_t a, uint32_t b) { return name(a) == name(b); });
        if (twin == order.end()) return;
        const std::string& one = gguf.paths_[gguf.tensors_[*twin].file];
        const std::string& other = gguf.paths_[gguf.tensors_[*(twin + 1)].file];
        fail(Status::format, one, ": tensor '", printable(name(*twin)), "' stands twice",
             one == other ? "" : cat(", here and in ", other),
             ". The file is damaged, or its writer is broken: convert the model again.");
    }
};

std::shared_ptr<const Gguf> Gguf::open(const std::string& path, bool use_mmap) {
    return GgufReader::open(path, use_mmap);
}

}  // namespace hy3
