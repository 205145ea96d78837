#include "core/imatrix_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/gguf_cursor.h"

namespace hy3 {
namespace {

constexpr const char* make_again = " Make it again with `hy3 imatrix`, or download it again.";
constexpr std::string_view sums_suffix = ".in_sum2", counts_suffix = ".counts";

float float_at(const uint8_t* data, uint64_t index) {
    float value;
    std::memcpy(&value, data + index * sizeof value, sizeof value);
    return value;
}

bool usable(float value) {
    return value >= 0.0f && std::isfinite(value);
}

bool begins_as_gguf(const MappedFile& file) {
    return file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
}

}  // namespace

std::shared_ptr<const ImatrixFile> ImatrixFile::open(const std::string& path) {
    std::shared_ptr<ImatrixFile> file(new ImatrixFile);
    file->path_ = path;
    file->legacy_ = MappedFile::open(path);
    if (begins_as_gguf(*file->legacy_)) {
        file->legacy_ = nullptr;
        file->gguf_ = Gguf::open(path);
        file->read_gguf();
    } else {
        file->read_legacy();
    }
    file->finish();
    return file;
}

void ImatrixFile::read_gguf() {
    for (const TensorInfo& info : gguf_->tensors()) {
        if (info.name.ends_with(counts_suffix)) {
            const std::string weight(info.name.substr(0, info.name.size() - counts_suffix.size()));
            if (gguf_->tensor(cat(weight, sums_suffix)) == nullptr)
                fail(Status::format, path_, ": ", printable(info.name), " has no ", sums_suffix,
                     " beside it. The file is damaged.", make_again);
            continue;
        }
        if (!info.name.ends_with(sums_suffix)) continue;
        const std::string_view weight = info.name.substr(0, info.name.size() - sums_suffix.size());
        const TensorInfo* counts = gguf_->tensor(cat(weight, counts_suffix));
        if (counts == nullptr)
            fail(Status::format, path_, ": ", printable(info.name), " has no ", counts_suffix,
                 " beside it. The file is damaged.", make_again);
        for (const TensorInfo* tensor : {&info, counts})
            if (tensor->type != Type::F32)
                fail(Status::format, path_, ": ", printable(tensor->name), " is of type ",
                     type_name(tensor->type), ", not f32. The file is damaged.", make_again);
        std::vector<float> numbers(static_cast<size_t>(counts->shape.elements()));
        std::memcpy(numbers.data(), counts->data, numbers.size() * sizeof(float));
        add(weight, info.shape.elements(), info.data, std::move(numbers));
    }
    if (entries_.empty())
        fail(Status::format, path_, ": there is no importance matrix in this file (general.type is \"",
             printable(gguf_->get_string_or("general.type", "")),
             "\"). Give a file that `hy3 imatrix` or llama-imatrix wrote.");
    chunk_count_ = gguf_->get_u32_or("imatrix.chunk_count", 0);
    if (gguf_->has("imatrix.datasets")) datasets_ = gguf_->get_strings("imatrix.datasets");
}

void ImatrixFile::read_legacy() {
    Cursor cursor(*legacy_);
    const auto n_entries = cursor.take<int32_t>({"the number of entries"});
    // A name's length, its first byte, the calls, the number of values, and one: what an entry takes at
    // least.
    constexpr uint64_t least = 4 + 1 + 4 + 4 + 4;
    if (n_entries < 1 || static_cast<uint64_t>(n_entries) > cursor.remaining() / least)
        fail(Status::format, path_,
             ": this is neither a GGUF file nor an importance matrix in llama.cpp's old format. Give a file "
             "that `hy3 imatrix` or llama-imatrix wrote.");
    for (int32_t i = 0; i < n_entries; i++) {
        const auto length = cursor.take<int32_t>({"the length of a name"});
        if (length < 1 || static_cast<uint64_t>(length) > max_tensor_name_bytes)
            fail(Status::format, path_, ": the name of entry ", i, " has ", length,
                 " bytes. The file is damaged.", make_again);
        const std::string_view name = cursor.take_bytes(static_cast<uint64_t>(length), {"a name"});
        const auto calls = cursor.take<int32_t>({"the calls of", name});
        const auto n_values = cursor.take<int32_t>({"the number of values of", name});
        if (n_values < 1 || calls < 0)
            fail(Status::format, path_, ": ", printable(name), " has ", n_values, " values of ", calls,
                 " calls. The file is damaged.", make_again);
        const auto count = static_cast<uint64_t>(n_values);
        const auto* sums = reinterpret_cast<const uint8_t*>(
            cursor.take_bytes(count * sizeof(float), {"the values of", name}).data());
        add(name, count, sums, {static_cast<float>(std::max(calls, 1))});
    }
    if (cursor.remaining() < 2 * sizeof(int32_t)) return;
    chunk_count_ = static_cast<uint32_t>(std::max(cursor.take<int32_t>({"the number of chunks"}), 0));
    const auto length = cursor.take<int32_t>({"the length of the dataset's name"});
    if (length > 0 && static_cast<uint64_t>(length) <= cursor.remaining())
        datasets_.push_back(cursor.take_bytes(static_cast<uint64_t>(length), {"the dataset's name"}));
}

void ImatrixFile::add(std::string_view name, uint64_t n_values, const uint8_t* sums,
                      std::vector<float> counts) {
    for (uint64_t i = 0; i < n_values; i++)
        if (!usable(float_at(sums, i)))
            fail(Status::format, path_, ": value ", i, " of ", printable(name), " is ", float_at(sums, i),
                 ", where a sum of squares must stand. The file is damaged.", make_again);
    for (const float count : counts)
        if (!usable(count) || (count > 0.0f && count < 1.0f))
            fail(Status::format, path_, ": a count of ", printable(name), " is ", count,
                 ". The file is damaged.", make_again);
    if (n_values % counts.size() != 0)
        fail(Status::format, path_, ": ", printable(name), " has ", n_values, " values and ", counts.size(),
             " counts, which do not go together. The file is damaged.", make_again);
    entries_.push_back({name, n_values, sums, std::move(counts)});
}

void ImatrixFile::finish() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.name < b.name; });
    for (size_t i = 1; i < entries_.size(); i++)
        if (entries_[i].name == entries_[i - 1].name)
            fail(Status::format, path_, ": ", printable(entries_[i].name),
                 " occurs twice. The file is damaged.", make_again);
}

const ImatrixFile::Entry& ImatrixFile::checked(size_t entry, int64_t cols, int64_t n_matrices) const {
    const Entry& e = entries_[entry];
    if (e.n_values % static_cast<uint64_t>(n_matrices) != 0 ||
        e.n_values / static_cast<uint64_t>(n_matrices) != static_cast<uint64_t>(cols) ||
        (e.counts.size() != 1 && e.counts.size() != static_cast<size_t>(n_matrices)))
        fail(Status::format, path_, ": ", printable(e.name), " has ", e.n_values, " values and ",
             e.counts.size(), " counts; the model's tensor has ", n_matrices, " times ", cols,
             " columns. The importance matrix is another model's: make it with this one.");
    return e;
}

bool ImatrixFile::mean_squares(size_t entry, int64_t cols, int64_t n_matrices, int64_t matrix,
                               float* out) const {
    const Entry& e = checked(entry, cols, n_matrices);
    const float count = e.counts.size() == 1 ? e.counts[0] : e.counts[static_cast<size_t>(matrix)];
    if (count == 0.0f) return false;
    for (int64_t c = 0; c < cols; c++)
        out[c] = float_at(e.sums, static_cast<uint64_t>(matrix * cols + c)) / count;
    return true;
}

bool ImatrixFile::mean_squares(size_t entry, int64_t cols, int64_t n_matrices, float* out) const {
    const Entry& e = checked(entry, cols, n_matrices);
    std::vector<double> sums(static_cast<size_t>(cols));
    double count = 0.0;
    for (int64_t m = 0; m < n_matrices; m++) {
        count += static_cast<double>(e.counts.size() == 1 ? e.counts[0] : e.counts[static_cast<size_t>(m)]);
        for (int64_t c = 0; c < cols; c++)
            sums[static_cast<size_t>(c)] +=
                static_cast<double>(float_at(e.sums, static_cast<uint64_t>(m * cols + c)));
    }
    if (count == 0.0) return false;
    for (int64_t c = 0; c < cols; c++) out[c] = static_cast<float>(sums[static_cast<size_t>(c)] / count);
    return true;
}

}  // namespace hy3
