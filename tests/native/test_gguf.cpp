// Header writer and reader against each other, and the accessors. What a hostile file may hold is tested from
// Python (tests/gguf, tests/fuzz), where files are made by other code than ours.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>

#include "core/gguf.h"
#include "core/gguf_writer.h"
#include "main.h"

using namespace hy3;
namespace fs = std::filesystem;

namespace {

// A directory of its own for each test, gone afterwards.
class Folder {
  public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "hy3-native-XXXXXX").string();
        if (!::mkdtemp(name.data())) fail(Status::io, "no temporary directory");
        path_ = name;
    }
    ~Folder() { fs::remove_all(path_); }
    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    fs::path path_;
};

// The header, then `header.data_bytes()` bytes that count up from `first`.
std::string write(const std::string& path, const GgufHeader& header, uint8_t first = 0) {
    std::string bytes = header.bytes();
    for (uint64_t i = 0; i < header.data_bytes(); i++) bytes += static_cast<char>(first + i);
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
}

GgufHeader small_header() {
    GgufHeader header;
    header.add("general.architecture", std::string_view("hy_v3"));
    header.add_tensor("a", Type::F32, {8, 3});
    header.add_tensor("b", Type::Q8_0, {64, 2, 2});
    return header;
}

}  // namespace

TEST(gguf_values_round_trip) {
    const Folder folder;
    GgufHeader header(64);
    header.add("u8", uint8_t{200});
    header.add("i8", int8_t{-100});
    header.add("u16", uint16_t{60000});
    header.add("i16", int16_t{-30000});
    header.add("u32", uint32_t{4000000000});
    header.add("i32", int32_t{-2000000000});
    header.add("u64", std::numeric_limits<uint64_t>::max());
    header.add("i64", std::numeric_limits<int64_t>::min());
    header.add("f32", 1.5f);
    header.add("f64", -0.1);
    header.add("yes", true);
    header.add("text", std::string_view("a\0b\xFF", 4));
    header.add_strings("texts", {"", "one", "two"});
    const std::vector<int32_t> numbers{1, -2, 3};
    header.add_numbers("numbers", GgufKind::i32, numbers.data(), numbers.size());
    const std::vector<uint8_t> flags{1, 0};
    header.add_numbers("flags", GgufKind::boolean, flags.data(), flags.size());
    header.add_numbers("none", GgufKind::f64, nullptr, 0);

    for (const bool use_mmap : {true, false}) {
        const auto file = Gguf::open(write(folder.file("values.gguf"), header), use_mmap);
        CHECK_EQ(file->version(), 3u);
        CHECK_EQ(file->alignment(), 64u);
        CHECK_EQ(file->metadata().size(), 17u);
        CHECK_EQ(file->metadata()[0].key, "general.alignment");
        CHECK(*file->find("u8") == GgufValue(uint8_t{200}));
        CHECK(*file->find("i8") == GgufValue(int8_t{-100}));
        CHECK(*file->find("u16") == GgufValue(uint16_t{60000}));
        CHECK(*file->find("i16") == GgufValue(int16_t{-30000}));
        CHECK_EQ(file->get_u32("u32"), 4000000000u);
        CHECK_EQ(file->get_i64("i32"), -2000000000);
        CHECK_EQ(file->get_u64("u64"), std::numeric_limits<uint64_t>::max());
        CHECK_EQ(file->get_i64("i64"), std::numeric_limits<int64_t>::min());
        CHECK_EQ(file->get_f32("f32"), 1.5f);
        CHECK_EQ(file->get_f32("f64"), -0.1f);
        CHECK(file->get_bool("yes"));
        CHECK_EQ(file->get_string("text"), std::string_view("a\0b\xFF", 4));
        CHECK(file->get_strings("texts") == std::vector<std::string_view>({"", "one", "two"}));
        CHECK(file->get_i32s("numbers") == numbers);
        CHECK(file->get_f32s("numbers") == std::vector<float>({1, -2, 3}));
        CHECK_EQ(file->get_array("flags").at<uint8_t>(0), 1);
        CHECK_EQ(file->get_array("none").count, 0u);
        CHECK(file->get_u32s("none").empty());
    }
}

TEST(gguf_getters_name_key_wanted_and_found) {
    const Folder folder;
    GgufHeader header;
    header.add("text", std::string_view("seven"));
    header.add("negative", int32_t{-1});
    header.add("wide", uint64_t{1} << 32);
    header.add("huge", 1e300);
    header.add("nan", std::nanf(""));
    header.add("yes", true);
    const float reals[] = {1.0f, std::numeric_limits<float>::infinity()};
    header.add_numbers("reals", GgufKind::f32, reals, 2);
    header.add_strings("texts", {"x"});
    const auto file = Gguf::open(write(folder.file("f.gguf"), header));

    CHECK_ERROR(Status::format, "key 'absent' is missing", file->get_u32("absent"));
    CHECK_ERROR(Status::format,
                "f.gguf: key 'text' should be an integer from 0 to 4294967295 but is string ('seven')",
                file->get_u32("text"));
    CHECK_ERROR(Status::format, "but is i32 (-1)", file->get_u32("negative"));
    CHECK_ERROR(Status::format, "but is i32 (-1)", file->get_u64("negative"));
    CHECK_ERROR(Status::format, "but is u64 (4294967296)", file->get_u32("wide"));
    CHECK_ERROR(Status::format, "should be a finite number", file->get_f32("huge"));
    CHECK_ERROR(Status::format, "should be a finite number", file->get_f32("nan"));
    CHECK_ERROR(Status::format, "but is bool (true)", file->get_u32("yes"));
    CHECK_ERROR(Status::format, "should be a bool", file->get_bool("wide"));
    CHECK_ERROR(Status::format, "should be a string", file->get_string("texts"));
    CHECK_ERROR(Status::format, "array of finite numbers but is array of f32 (2 elements)",
                file->get_f32s("reals"));
    CHECK_ERROR(Status::format, "should be an array of strings", file->get_strings("reals"));
    CHECK_ERROR(Status::format, "should be an array of integers", file->get_u32s("texts"));
    CHECK_ERROR(Status::format, "should be an array", file->get_array("text"));
    CHECK_ERROR(Status::format, "'text' should be",
                file->get_u32_or("text", 1));  // present but wrong: no default
    CHECK_EQ(file->get_u32_or("absent", 7), 7u);
    CHECK_EQ(file->get_string_or("absent", "otherwise"), "otherwise");
    CHECK_EQ(file->get_f32("wide"), 4294967296.0f);  // an integer where a float is wanted
}

TEST(gguf_per_layer_values) {
    const Folder folder;
    GgufHeader header;
    header.add("same", uint32_t{5});
    const uint32_t widths[] = {1, 2, 3};
    header.add_numbers("each", GgufKind::u32, widths, 3);
    const auto file = Gguf::open(write(folder.file("f.gguf"), header));
    CHECK(file->get_u32_per_layer("same", 2) == std::vector<uint32_t>({5, 5}));
    CHECK(file->get_u32_per_layer("each", 3) == std::vector<uint32_t>({1, 2, 3}));
    CHECK_ERROR(Status::format, "'each' has 3 elements for 4 layers", file->get_u32_per_layer("each", 4));
}

TEST(gguf_tensors_round_trip) {
    const Folder folder;
    const GgufHeader header = small_header();
    CHECK_EQ(header.offset(0), 0u);
    CHECK_EQ(header.nbytes(0), 96u);
    CHECK_EQ(header.offset(1), 96u);
    CHECK_EQ(header.nbytes(1), 272u);
    CHECK_EQ(header.data_bytes(), 96u + 288u);
    const auto file = Gguf::open(write(folder.file("t.gguf"), header));
    CHECK_EQ(file->file_bytes(), header.file_bytes());
    CHECK_EQ(file->tensors().size(), 2u);
    const TensorInfo* b = file->tensor("b");
    CHECK(b != nullptr && b == &file->tensors()[1]);
    CHECK_EQ(b->shape.text(), "[64, 2, 2]");
    CHECK_EQ(b->shape.row_length(), 64u);
    CHECK_EQ(b->shape.rows(), 4u);
    CHECK(b->type == Type::Q8_0);
    CHECK_EQ(b->nbytes, 272u);
    CHECK_EQ(int{b->data[0]}, 96);
    CHECK_EQ(int{b->data[271]}, (96 + 271) % 256);
    CHECK_EQ(b->offset, header.bytes().size() + 96);
    CHECK(file->tensor("c") == nullptr);
    CHECK(file->tensor("") == nullptr);
}

TEST(gguf_writer_refuses_nonsense) {
    GgufHeader header = small_header();
    CHECK_ERROR(Status::invalid_argument, "key 'general.architecture' is written twice",
                header.add("general.architecture", 1.0f));
    CHECK_ERROR(Status::invalid_argument, "tensor 'a' is written twice",
                header.add_tensor("a", Type::F32, {1}));
    CHECK_ERROR(Status::invalid_argument, "do not divide", header.add_tensor("c", Type::Q8_0, {33, 2}));
    CHECK_ERROR(Status::invalid_argument, "none of them 0", header.add_tensor("c", Type::F32, {32, 0}));
    CHECK_ERROR(Status::invalid_argument, "[]", header.add_tensor("c", Type::F32, {}));
    CHECK_ERROR(Status::invalid_argument, "a shape of 5", header.add_tensor("c", Type::F32, {1, 1, 1, 1, 1}));
    CHECK_ERROR(Status::invalid_argument, "cannot have the shape",
                header.add_tensor("c", Type::F32, {uint64_t{1} << 32, uint64_t{1} << 32}));
    CHECK_ERROR(Status::invalid_argument, "original hy3 engine",
                header.add_tensor("c", Type::Q8_0_HY3, {32}));
    CHECK_ERROR(Status::invalid_argument, "1 to 63 bytes",
                header.add_tensor(std::string(64, 'x'), Type::F32, {1}));
    CHECK_ERROR(Status::invalid_argument, "key ''", header.add("", 1.0f));
    CHECK_ERROR(Status::invalid_argument, "\\xFF", header.add("\xFF", 1.0f));
    CHECK_ERROR(Status::invalid_argument, "an alignment of 48", GgufHeader(48));
    CHECK_EQ(header.n_tensors(), 2u);  // nothing of the above left a trace
}

TEST(gguf_plans_splits_in_order) {
    const auto plan = [](uint64_t limit) { return plan_splits({100, 32, 32, 500, 1}, limit); };
    CHECK(plan(10000) == std::vector<size_t>({0}));
    CHECK(plan(192) == std::vector<size_t>({0, 3, 4}));  // 128 + 32 + 32 | 512, too large, alone | 32
    CHECK(plan(191) == std::vector<size_t>({0, 2, 3, 4}));
    CHECK(plan(1) == std::vector<size_t>({0, 1, 2, 3, 4}));
    CHECK(plan_splits({}, 1) == std::vector<size_t>({0}));
    CHECK_ERROR(Status::invalid_argument, "into 1001", plan_splits(std::vector<uint64_t>(1001, 5), 5));
    CHECK_EQ(split_path("d/m.gguf", 0, 12), "d/m-00001-of-00012.gguf");
    CHECK_EQ(split_path("m", 11, 12), "m-00012-of-00012.gguf");
}

TEST(gguf_reads_what_was_split) {
    const Folder folder;
    const auto part = [&](uint32_t no, std::string_view tensor) {
        GgufHeader header;
        if (no == 0) header.add("general.architecture", std::string_view("hy_v3"));
        add_split_keys(header, no, 3, 2);
        if (!tensor.empty()) header.add_tensor(tensor, Type::F32, {16});
        return write(folder.file(split_path("m", no, 3)), header, static_cast<uint8_t>(10 * no));
    };
    const std::string first = part(0, "");  // llama.cpp's --no-tensor-first-split
    part(1, "b");
    const std::string last = part(2, "a");
    const auto file = Gguf::open(first);
    CHECK_EQ(file->paths().size(), 3u);
    CHECK_EQ(file->paths()[2], last);
    CHECK_EQ(file->tensors().size(), 2u);
    CHECK_EQ(file->tensor("a")->file, 2u);
    CHECK_EQ(int{file->tensor("a")->data[0]}, 20);
    CHECK_EQ(int{file->tensor("b")->data[0]}, 10);
    CHECK_EQ(file->get_string("general.architecture"), "hy_v3");
    CHECK(*file->find("split.no") == GgufValue(uint16_t{0}));
    CHECK(*file->find("split.tensors.count") == GgufValue(int32_t{2}));
    CHECK_ERROR(Status::invalid_argument, "Open the first part, " + first, Gguf::open(last));
}

TEST(gguf_utf8_and_printing) {
    CHECK(is_utf8(""));
    CHECK(is_utf8("a\xC3\xA9\xEF\xBD\x9C\xF0\x9F\x92\xA1\xF4\x8F\xBF\xBF"));
    for (const char* bad : {"\x80", "\xC0\xAF", "\xC3", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                            "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xFF", "a\xC3("}) {
        CHECK(!is_utf8(bad));
    }
    CHECK_EQ(printable("a\n\xFF\xC3\xA9"), "a\\x0A\\xFF\xC3\xA9");
    CHECK_EQ(printable(std::string(65, 'x')), std::string(64, 'x') + "...");
}

TEST(mapped_file_refuses_what_is_no_file) {
    const Folder folder;
    CHECK_ERROR(Status::io, folder.file("none") + ": cannot be opened",
                MappedFile::open(folder.file("none")));
    CHECK_ERROR(Status::io, "is a directory", MappedFile::open(folder.file("")));
    CHECK_ERROR(Status::io, "not a regular file", MappedFile::open("/dev/zero"));
    CHECK_ERROR(Status::invalid_argument, "empty", MappedFile::open(""));
    std::ofstream(folder.file("empty"));
    CHECK_ERROR(Status::format, "is empty", MappedFile::open(folder.file("empty")));
    std::ofstream(folder.file("one")) << "x";
    for (const bool use_mmap : {true, false}) {
        const auto file = MappedFile::open(folder.file("one"), use_mmap);
        CHECK_EQ(file->size(), 1u);
        CHECK_EQ(file->data()[0], 'x');
        CHECK_EQ(file->is_mapped(), use_mmap);
        file->lock();  // allowed to fail, not to harm
    }
}
