// What an importance matrix is made of: for each column of a weight, the sum of the squares that it was
// multiplied by. A quantizer that weighs a column's error by the mean square minimizes the expected error of
// the product (the cross terms left out).
//
//   ImportanceCollector collector(model);      // observes every step of the model until it goes
//   session.score(tokens, ...);
//   for (const auto& entry : collector.entries()) ...
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/model.h"

namespace hy3 {

class ImportanceCollector final : public ActivationObserver {
  public:
    // Error(invalid_argument) while another collector observes the model.
    explicit ImportanceCollector(std::shared_ptr<Model> model);
    ~ImportanceCollector() override;
    ImportanceCollector(const ImportanceCollector&) = delete;
    ImportanceCollector& operator=(const ImportanceCollector&) = delete;

    // Names are the GGUF's. Weights that read the same rows (q, k and v; gate and up) have entries with the
    // same numbers behind them. The router is not among them: it is never quantized.
    struct Entry {
        std::string name;
        int64_t cols;
        std::span<const double> sums;     // (n_matrices, cols); n_matrices is 1, or the number of experts
        std::span<const int64_t> counts;  // (n_matrices): rows that went in; 0 for an expert nobody chose
    };
    // Not while a step runs. A step that was stopped has left part of its rows in the sums.
    const std::vector<Entry>& entries() const { return entries_; }

    // Squares are exact in double and are added row by row, so for a row-wise independent backend the sums do
    // not depend on the chunk or on the number of threads.
    void take(const Matrix& w, int64_t n, const float* x, const int32_t* rows) override;

  private:
    struct Sums {
        std::vector<double> squares;
        std::vector<int64_t> counts;
    };
    struct Place {
        Sums* sums;
        size_t matrix;
    };

    void add(const std::vector<std::string>& names, const std::vector<const Matrix*>& matrices);
    void add_ffn(const std::string& block, const std::string& suffix, const Ffn& ffn);
    void add_experts(const std::string& block, const Experts& experts);
    void add_block(const std::string& block, const Layer& layer);

    std::shared_ptr<Model> model_;
    std::vector<std::unique_ptr<Sums>> sums_;
    std::vector<Entry> entries_;
    std::unordered_map<const uint8_t*, Place> places_;  // by Matrix::data
};

}  // namespace hy3
