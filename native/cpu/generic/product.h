// Products of a panel of 16 weight rows with any number of activation rows.
//
// Quantized weights: for each output, over the groups of columns in order,
//   acc = fma(dot, scale_w * scale_x, acc)    dot: the exact integer sum of the group
//   acc = fma(bias_w, scale_x * sum_x, acc)   where the format has minima
// Both paths do exactly this, so which of them runs changes no bit: for few activation rows the 16 weight
// rows are dotted one by one and the sums transposed (few_rows.h); for more, the weights are transposed once
// and every activation row uses them, a lane per weight row.
//
// Float weights: float_product.h.

// The parts of a row of activations that a product needs, from a column on.
template <int group>
struct ActivationRow {
    const int8_t* q;
    const float* scale;  // by 32 columns
    const int32_t* sum;  // by group
    const float* float_sum;

    HY3_INLINE ActivationRow of(const QuantizedRows& x, int64_t row, int64_t column) {
        const int64_t at = row * (x.stride / 32) + column / 32;
        const int8_t* q = x.q + row * x.stride + column;
        if constexpr (group == 32) return {q, x.scale + at, x.sum32 + at, x.fsum32 + at};
        return {q, x.scale + at, x.sum16 + 2 * at, x.fsum16 + 2 * at};
    }
};

// What group g adds to the 16 sums of an activation row.
template <int group, bool has_bias>
HY3_INLINE F add_group(F acc, I dots, int g, const Panel& s, const ActivationRow<group>& x) {
    acc = fma(to_float(dots), mul(load(s.scale + g * kPanel), set1(x.scale[g * group / 32])), acc);
    if constexpr (has_bias) acc = fma(load(s.bias + g * kPanel), set1(x.float_sum[g]), acc);
    return acc;
}

#include "cpu/generic/few_rows.h"

// Unpacks columns [column, column + columns) of 16 rows.
using UnpackPanel = void (*)(const uint8_t* const* rows, int64_t column, int columns, Ahead& ahead,
                             Panel& panel);

// Many rows: the arithmetic, for all formats that have these in common (see panel.h).
template <int group, int code_bits, bool has_bias>
struct QuantizedProduct {
    // n activation rows at once, n known to the compiler.
    template <int n>
    static void block(int offset, const QuantizedRows& q, const int64_t* rows, int64_t column, int columns,
                      const Panel& s, float* tile) {
        ActivationRow<group> x[n];
        const int8_t* codes[n];
        F acc[n];
        for (int i = 0; i < n; i++) {
            x[i] = ActivationRow<group>::of(q, rows[i], column);
            codes[i] = x[i].q;
            acc[i] = load(tile + i * kPanel);
        }
        for (int g = 0; g * group < columns; g++) {
            I dots[n];
            for (int i = 0; i < n; i++) dots[i] = iset1(-offset * x[i].sum[g]);
            Tile::add_dots<group, code_bits, n>(s.words + g * group * kPanel, codes, g * group, dots);
            for (int i = 0; i < n; i++) acc[i] = add_group<group, has_bias>(acc[i], dots[i], g, s, x[i]);
        }
        for (int i = 0; i < n; i++) store(tile + i * kPanel, acc[i]);
    }

    static void run(UnpackPanel unpack, int offset, const Matrix& w, const uint8_t* const* weights,
                    const ProductRows& rows, float* tile, Panel& panel, const uint8_t* next) {
        for (int64_t i = 0; i < rows.n * kPanel; i++) tile[i] = 0.0f;
        Ahead ahead(next, weights[0]);
        for (int64_t column = 0; column < w.cols; column += kColumns) {
            const int columns = static_cast<int>(w.cols - column < kColumns ? w.cols - column : kColumns);
            unpack(weights, column, columns, ahead, panel);
            for (int first = 0; first < columns; first += 64)
                Tile::interleave(panel.rows + first, Panel::stride, panel.words + first * kPanel);
            int64_t i = 0;
            for (; i + kRowBlock <= rows.n; i += kRowBlock)
                some_rows<kRowBlock>(kRowBlock, i, offset, rows, column, columns, tile, panel);
            if constexpr (kRowBlock > 1) {
                if (i < rows.n)
                    some_rows<kRowBlock - 1>(rows.n - i, i, offset, rows, column, columns, tile, panel);
            }
        }
    }

    // The `count` rows from `first` on, count <= n: with the block of that size.
    template <int n>
    static void some_rows(int64_t count, int64_t first, int offset, const ProductRows& rows, int64_t column,
                          int columns, float* tile, Panel& s) {
        if constexpr (n > 1) {
            if (count < n) return some_rows<n - 1>(count, first, offset, rows, column, columns, tile, s);
        }
        int64_t block_rows[n];
        for (int r = 0; r < n; r++) block_rows[r] = rows.row(first + r);
        block<n>(offset, *rows.q, block_rows, column, columns, s, tile + first * kPanel);
    }
};

// For n to dotted_rows activation rows; false if there are more.
template <typename Format, int n = 1>
HY3_INLINE bool dotted(const Matrix& w, const uint8_t* const* weights, const ProductRows& rows, float* tile,
                       Panel& panel, const uint8_t* next) {
    if (rows.n == n) {
        few_rows<Format, n>(w, weights, rows, tile, panel, next);
        return true;
    }
    if constexpr (n < dotted_rows<Format>) return dotted<Format, n + 1>(w, weights, rows, tile, panel, next);
    return false;
}

template <typename Format>
HY3_INLINE void quantized(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                          void* scratch, const uint8_t* next) {
    const uint8_t* weights[kPanel];
    for (int r = 0; r < kPanel; r++) weights[r] = w.row(first + (r < count ? r : count - 1));
    Panel& panel = *static_cast<Panel*>(scratch);
    if (dotted<Format>(w, weights, rows, tile, panel, next)) return;
    QuantizedProduct<Format::group, Format::code_bits, Format::has_bias>::run(
        unpack_panel<Format>, Format::offset, w, weights, rows, tile, panel, next);
}

static void product(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    void* scratch, const uint8_t* next) {
    switch (w.type) {
        case Type::F32:
            return FloatProduct<LoadF32>::run(w, first, count, rows, tile, scratch, next);
        case Type::F16:
            return FloatProduct<LoadF16>::run(w, first, count, rows, tile, scratch, next);
        case Type::BF16:
            return FloatProduct<LoadBF16>::run(w, first, count, rows, tile, scratch, next);
        case Type::Q4_0:
            return quantized<UnpackQ4_0>(w, first, count, rows, tile, scratch, next);
        case Type::Q4_1:
            return quantized<UnpackQ4_1>(w, first, count, rows, tile, scratch, next);
        case Type::Q5_0:
            return quantized<UnpackQ5_0>(w, first, count, rows, tile, scratch, next);
        case Type::Q5_1:
            return quantized<UnpackQ5_1>(w, first, count, rows, tile, scratch, next);
        case Type::Q8_0:
            return quantized<UnpackQ8_0>(w, first, count, rows, tile, scratch, next);
        case Type::Q2_K:
            return quantized<UnpackQ2_K>(w, first, count, rows, tile, scratch, next);
        case Type::Q3_K:
            return quantized<UnpackQ3_K>(w, first, count, rows, tile, scratch, next);
        case Type::Q4_K:
            return quantized<UnpackQ4_K>(w, first, count, rows, tile, scratch, next);
        case Type::Q5_K:
            return quantized<UnpackQ5_K>(w, first, count, rows, tile, scratch, next);
        case Type::Q6_K:
            return quantized<UnpackQ6_K>(w, first, count, rows, tile, scratch, next);
        case Type::IQ1_S:
            return quantized<UnpackIQ1_S>(w, first, count, rows, tile, scratch, next);
        case Type::IQ1_M:
            return quantized<UnpackIQ1_M>(w, first, count, rows, tile, scratch, next);
        case Type::IQ2_XXS:
            return quantized<UnpackIQ2_XXS>(w, first, count, rows, tile, scratch, next);
        case Type::IQ2_XS:
            return quantized<UnpackIQ2_XS>(w, first, count, rows, tile, scratch, next);
        case Type::IQ2_S:
            return quantized<UnpackIQ2_S>(w, first, count, rows, tile, scratch, next);
        case Type::IQ3_XXS:
            return quantized<UnpackIQ3_XXS>(w, first, count, rows, tile, scratch, next);
        case Type::IQ3_S:
            return quantized<UnpackIQ3_S>(w, first, count, rows, tile, scratch, next);
        case Type::IQ4_NL:
            return quantized<UnpackIQ4_NL>(w, first, count, rows, tile, scratch, next);
        case Type::IQ4_XS:
            return quantized<UnpackIQ4_XS>(w, first, count, rows, tile, scratch, next);
        case Type::MXFP4:
            return quantized<UnpackMXFP4>(w, first, count, rows, tile, scratch, next);
        default:
            break;  // load_weights() lets no other type through
    }
}
