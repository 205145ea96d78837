// Reader of importance matrix files as llama.cpp writes them (its common/imatrix-loader.cpp), old and new.
//
// GGUF: general.type "imatrix"; imatrix.datasets (strings), imatrix.chunk_count and imatrix.chunk_size (u32);
// for each weight NAME two float32 tensors, NAME.in_sum2 (cols, n_matrices), sums of squares, and NAME.counts
// (1, n_matrices), how many rows went into them. n_matrices is the number of experts, or 1. Old files have a
// single count for all experts.
//
// Legacy (.dat), little-endian: i32 n_entries; n_entries x {i32 length, name, i32 calls, i32 n_values,
// float32 values[n_values]: mean square x calls, all experts one after the other}; then, unless cut off, i32
// chunks, i32 length, dataset. An expert that nobody chose cannot be told there: its values are calls.
//
// Files come from strangers: open() checks every count, length and value, so that what follows may trust
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/gguf.h"

namespace hy3 {

class ImatrixFile {
  public:
    static std::shared_ptr<const ImatrixFile> open(const std::string& path);

    struct Entry {
        std::string_view name;  // of the weight
        uint64_t n_values;
        const uint8_t* sums;        // float32[n_values], finite and not negative, at any alignment
        std::vector<float> counts;  // one, or one a matrix; 0, or at least 1
    };
    const std::vector<Entry>& entries() const { return entries_; }
    const std::vector<std::string_view>& datasets() const { return datasets_; }
    uint32_t chunk_count() const { return chunk_count_; }
    const std::string& path() const { return path_; }

    // out (cols) = the mean square of each column of one of an entry's n_matrices matrices; false, and `out`
    // as it was, when no row ever went into it. Error(format) when the entry has another size.
    bool mean_squares(size_t entry, int64_t cols, int64_t n_matrices, int64_t matrix, float* out) const;
    // The same over the rows of all its matrices.
    bool mean_squares(size_t entry, int64_t cols, int64_t n_matrices, float* out) const;

  private:
    ImatrixFile() = default;

    void read_gguf();
    void read_legacy();
    void add(std::string_view name, uint64_t n_values, const uint8_t* sums, std::vector<float> counts);
    void finish();
    const Entry& checked(size_t entry, int64_t cols, int64_t n_matrices) const;

    std::string path_;
    std::shared_ptr<const Gguf> gguf_;  // one of these two holds the bytes
    std::shared_ptr<const MappedFile> legacy_;
    std::vector<Entry> entries_;  // by name
    std::vector<std::string_view> datasets_;
    uint32_t chunk_count_ = 0;
};

}  // namespace hy3
