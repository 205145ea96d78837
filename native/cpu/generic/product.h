// Products of a panel of 16 weight rows with any number of activation rows.
//
// Quantized weights: for each output, over the groups of columns in order,
//   acc = fma(dot, scale_w * scale_x, acc)    dot: the exact integer sum of the group
//   acc = fma(bias_w, scale_x * sum_x, acc)   where the format has minima
// Both paths below do exactly this, so which of them runs changes no bit: for one activation row the 16
// weight rows are dotted one by one and the sums transposed; for more, the weights are transposed once and
// every activation row uses them, a lane per weight row.
//
// Float weights: 16 sums by column, each a chain of fma, added up in one fixed tree.

// Columns of a panel that are unpacked at a time: they and their activations fit the first-level cache.
constexpr int kColumns = 1024;

// Some columns of 16 weight rows, unpacked.
struct Panel {
    static constexpr int64_t stride =
        kColumns + 64;  // so that the rows do not fall on the same sets of the cache
    static constexpr int groups = kColumns / 16;
    alignas(64) uint8_t rows[kPanel * stride];
    alignas(64) uint8_t words[kPanel * kColumns];  // the same, as Tile orders them
    alignas(64) float scale[groups * kPanel];      // by group, a lane per row
    alignas(64) float bias[groups * kPanel];
    alignas(64) float row_scale[kPanel * groups];  // by row, as the blocks give them; possibly float16
    alignas(64) float row_bias[kPanel * groups];
};

// From scales by row, in the format's type, to float32 by group.
template <typename Scale>
HY3_INLINE void transpose_scales(int groups, float* by_row, float* by_group) {
    for (int first = 0; first < groups; first += 16) {
        if constexpr (sizeof(Scale) == 2) {
            float wide[16 * 16];
            for (int r = 0; r < kPanel; r++)
                store(wide + 16 * r,
                      load_f16(reinterpret_cast<const Scale*>(by_row) + r * Panel::groups + first));
            transpose_words(wide, 64, by_group + first * kPanel);
        } else {
            transpose_words(by_row + first, Panel::groups * sizeof(float), by_group + first * kPanel);
        }
    }
}

// Unpacks columns [column, column + columns) of 16 rows.
using UnpackPanel = void (*)(const uint8_t* const* rows, int64_t column, int columns, Panel& panel);

template <typename Format>
static void unpack_panel(const uint8_t* const* rows, int64_t column, int columns, Panel& panel) {
    using Block = typename Format::Block;
    using Scale = typename Format::Scale;
    constexpr int groups = Format::elements / Format::group;
    const int blocks = columns / Format::elements;
    for (int r = 0; r < kPanel; r++) {
        const auto* from = reinterpret_cast<const Block*>(rows[r]) + column / Format::elements;
        uint8_t* u = panel.rows + r * Panel::stride;
        auto* scale = reinterpret_cast<Scale*>(panel.row_scale) + r * Panel::groups;
        auto* bias = reinterpret_cast<Scale*>(panel.row_bias) + r * Panel::groups;
        // Ask for the row's next columns: the turn comes back to it after the other 15 rows.
        const auto* next = reinterpret_cast<const uint8_t*>(from + blocks);
        for (size_t line = 0; line < blocks * sizeof(Block); line += 64)
            __builtin_prefetch(next + line, 0, 2);
        for (int b = 0; b < blocks; b++)
            Format::unpack(from[b], u + b * Format::elements, scale + b * groups, bias + b * groups);
    }
    transpose_scales<Scale>(blocks * groups, panel.row_scale, panel.scale);
    if constexpr (Format::has_bias) transpose_scales<Scale>(blocks * groups, panel.row_bias, panel.bias);
}

// The arithmetic, for all formats that have these in common (see unpack.h).
template <int group, bool wide, bool has_bias>
struct QuantizedProduct {
    HY3_INLINE const int32_t* sums(const QuantizedRows& x, int64_t row) {
        return group == 32 ? x.sum32 + row * (x.stride / 32) : x.sum16 + row * (x.stride / 16);
    }
    HY3_INLINE const float* float_sums(const QuantizedRows& x, int64_t row) {
        return group == 32 ? x.fsum32 + row * (x.stride / 32) : x.fsum16 + row * (x.stride / 16);
    }

    // What one group adds to the 16 sums of an activation row.
    HY3_INLINE F accumulate(F acc, I dots, int g, const Panel& s, float x_scale, float x_float_sum) {
        acc = fma(to_float(dots), mul(load(s.scale + g * kPanel), set1(x_scale)), acc);
        if constexpr (has_bias) acc = fma(load(s.bias + g * kPanel), set1(x_float_sum), acc);
        return acc;
    }

    // One activation row: dots of each weight row with it, then a lane per weight row.
    static void single(int offset, const QuantizedRows& x, int64_t row, int64_t column, int columns,
                       const Panel& s, float* tile) {
        const int8_t* q = x.q + row * x.stride + column;
        const float* scale = x.scale + row * (x.stride / 32) + column / 32;
        const int32_t* sum = sums(x, row) + column / group;
        const float* float_sum = float_sums(x, row) + column / group;
        F acc = load(tile);
        for (int first = 0; first < columns; first += 64) {
            const I activations = load_bytes(q + first);
            I quads[4];
            for (int i = 0; i < 4; i++) {
                const uint8_t* weights = s.rows + 4 * i * Panel::stride + first;
                I dots[4];
                for (int r = 0; r < 4; r++)
                    dots[r] = dot4<wide>(iset1(0), load_bytes(weights + r * Panel::stride), activations);
                quads[i] = sum_quarters(dots[0], dots[1], dots[2], dots[3]);
            }
            I by16[4];  // sums of 16 columns each
            gather_quarters(quads[0], quads[1], quads[2], quads[3], by16);
            for (int part = 0; part < 64 / group; part++) {
                const int g = first / group + part;
                if (first + part * group >= columns) break;
                const I dots =
                    group == 16 ? by16[part] : iadd(by16[(2 * part) & 3], by16[(2 * part + 1) & 3]);
                const I correction = iset1(-offset * sum[g]);
                acc = accumulate(acc, iadd(dots, correction), g, s, scale[g * group / 32], float_sum[g]);
            }
        }
        store(tile, acc);
    }

    // n activation rows at once, n known to the compiler.
    template <int n>
    static void block(int offset, const QuantizedRows& x, const int64_t* rows, int64_t column, int columns,
                      const Panel& s, float* tile) {
        const int8_t* q[n];
        const float* scale[n];
        const int32_t* sum[n];
        const float* float_sum[n];
        F acc[n];
        for (int i = 0; i < n; i++) {
            q[i] = x.q + rows[i] * x.stride + column;
            scale[i] = x.scale + rows[i] * (x.stride / 32) + column / 32;
            sum[i] = sums(x, rows[i]) + column / group;
            float_sum[i] = float_sums(x, rows[i]) + column / group;
            acc[i] = load(tile + i * kPanel);
        }
        for (int g = 0; g * group < columns; g++) {
            I dots[n];
            for (int i = 0; i < n; i++) dots[i] = iset1(-offset * sum[i][g]);
            Tile::add_dots<group, wide, n>(s.words + g * group * kPanel, q, g * group, dots);
            for (int i = 0; i < n; i++)
                acc[i] = accumulate(acc[i], dots[i], g, s, scale[i][g * group / 32], float_sum[i][g]);
        }
        for (int i = 0; i < n; i++) store(tile + i * kPanel, acc[i]);
    }

    static void run(UnpackPanel unpack, int offset, const Matrix& w, int64_t first, int count,
                    const ProductRows& rows, float* tile, void* scratch) {
        const uint8_t* weights[kPanel];
        for (int r = 0; r < kPanel; r++) weights[r] = w.row(first + (r < count ? r : count - 1));
        for (int64_t i = 0; i < rows.n * kPanel; i++) tile[i] = 0.0f;
        Panel& panel = *static_cast<Panel*>(scratch);
        for (int64_t column = 0; column < w.cols; column += kColumns) {
            const int columns = static_cast<int>(w.cols - column < kColumns ? w.cols - column : kColumns);
            unpack(weights, column, columns, panel);
            run_columns(offset, rows, column, columns, tile, panel);
        }
    }

    static void run_columns(int offset, const ProductRows& rows, int64_t column, int columns, float* tile,
                            Panel& s) {
        const QuantizedRows& x = *rows.q;
        const auto at = [&](int64_t i) { return rows.index != nullptr ? rows.index[i] : i; };
        if (rows.n == 1) {
            single(offset, x, at(0), column, columns, s, tile);
            return;
        }
        for (int first = 0; first < columns; first += 64)
            Tile::interleave(s.rows + first, Panel::stride, s.words + first * kPanel);
        int64_t i = 0;
        for (; i + kRowBlock <= rows.n; i += kRowBlock) {
            int64_t block_rows[kRowBlock];
            for (int r = 0; r < kRowBlock; r++) block_rows[r] = at(i + r);
            block<kRowBlock>(offset, x, block_rows, column, columns, s, tile + i * kPanel);
        }
        if constexpr (kRowBlock > 4) {
            for (; i + 4 <= rows.n; i += 4) {
                const int64_t block_rows[4] = {at(i), at(i + 1), at(i + 2), at(i + 3)};
                block<4>(offset, x, block_rows, column, columns, s, tile + i * kPanel);
            }
        }
        for (; i < rows.n; i++) {
            const int64_t row = at(i);
            block<1>(offset, x, &row, column, columns, s, tile + i * kPanel);
        }
    }
};

template <typename Format>
HY3_INLINE void quantized(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                          void* scratch) {
    QuantizedProduct<Format::group, Format::wide, Format::has_bias>::run(
        unpack_panel<Format>, Format::offset, w, first, count, rows, tile, scratch);
}

struct LoadF32 {
    using Value = float;
    HY3_INLINE F vector(const float* p) { return load(p); }
    HY3_INLINE float scalar(const float* p) { return *p; }
};
struct LoadF16 {
    using Value = uint16_t;
    HY3_INLINE F vector(const uint16_t* p) { return load_f16(p); }
    HY3_INLINE float scalar(const uint16_t* p) { return half_to_float(*p); }
};
struct LoadBF16 {
    using Value = uint16_t;
    HY3_INLINE F vector(const uint16_t* p) { return load_bf16(p); }
    HY3_INLINE float scalar(const uint16_t* p) {
        const uint32_t bits = static_cast<uint32_t>(*p) << 16;
        float x;
        __builtin_memcpy(&x, &bits, 4);
        return x;
    }
};

HY3_INLINE float sum_tree(F x) {
    const F quarters = sum_quarters(x, x, x, x);
    float lanes[16];
    store(lanes, quarters);
    return (lanes[0] + lanes[4]) + (lanes[8] + lanes[12]);
}

template <typename Load>
struct FloatProduct {
    using Value = typename Load::Value;

    // m weight rows times n activation rows.
    template <int m, int n>
    HY3_INLINE void block(const Value* const* w, const float* const* x, int64_t cols, float* tile,
                          int64_t column) {
        F acc[m][n];
        for (int r = 0; r < m; r++)
            for (int i = 0; i < n; i++) acc[r][i] = set1(0.0f);
        int64_t c = 0;
        for (; c + 16 <= cols; c += 16) {
            F activations[n];
            for (int i = 0; i < n; i++) activations[i] = load(x[i] + c);
            for (int r = 0; r < m; r++) {
                const F weights = Load::vector(w[r] + c);
                for (int i = 0; i < n; i++) acc[r][i] = fma(weights, activations[i], acc[r][i]);
            }
        }
        if (c < cols) {
            const int rest = static_cast<int>(cols - c);
            for (int r = 0; r < m; r++) {
                float lanes[16] = {};
                for (int k = 0; k < rest; k++) lanes[k] = Load::scalar(w[r] + c + k);
                const F weights = load(lanes);
                for (int i = 0; i < n; i++) acc[r][i] = fma(weights, load_first(x[i] + c, rest), acc[r][i]);
            }
        }
        for (int r = 0; r < m; r++)
            for (int i = 0; i < n; i++) tile[i * kPanel + column + r] = sum_tree(acc[r][i]);
    }

    static void run(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile, void*) {
        const auto at = [&](int64_t i) {
            return rows.f + (rows.index != nullptr ? rows.index[i] : i) * w.cols;
        };
        for (int r = 0; r < count; r += kFloatWeights) {
            const Value* weights[kFloatWeights];
            for (int k = 0; k < kFloatWeights; k++)
                weights[k] =
                    reinterpret_cast<const Value*>(w.row(first + (r + k < count ? r + k : count - 1)));
            int64_t i = 0;
            for (; i + kFloatRows <= rows.n; i += kFloatRows) {
                const float* x[kFloatRows];
                for (int k = 0; k < kFloatRows; k++) x[k] = at(i + k);
                block<kFloatWeights, kFloatRows>(weights, x, w.cols, tile + i * kPanel, r);
            }
            for (; i < rows.n; i++) {
                const float* x = at(i);
                block<kFloatWeights, 1>(weights, &x, w.cols, tile + i * kPanel, r);
            }
        }
    }
};

static void product(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    void* scratch) {
    switch (w.type) {
        case Type::F32:
            return FloatProduct<LoadF32>::run(w, first, count, rows, tile, scratch);
        case Type::F16:
            return FloatProduct<LoadF16>::run(w, first, count, rows, tile, scratch);
        case Type::BF16:
            return FloatProduct<LoadBF16>::run(w, first, count, rows, tile, scratch);
        case Type::Q4_0:
            return quantized<UnpackQ4_0>(w, first, count, rows, tile, scratch);
        case Type::Q4_1:
            return quantized<UnpackQ4_1>(w, first, count, rows, tile, scratch);
        case Type::Q5_0:
            return quantized<UnpackQ5_0>(w, first, count, rows, tile, scratch);
        case Type::Q5_1:
            return quantized<UnpackQ5_1>(w, first, count, rows, tile, scratch);
        case Type::Q8_0:
            return quantized<UnpackQ8_0>(w, first, count, rows, tile, scratch);
        case Type::Q2_K:
            return quantized<UnpackQ2_K>(w, first, count, rows, tile, scratch);
        case Type::Q3_K:
            return quantized<UnpackQ3_K>(w, first, count, rows, tile, scratch);
        case Type::Q4_K:
            return quantized<UnpackQ4_K>(w, first, count, rows, tile, scratch);
        case Type::Q5_K:
            return quantized<UnpackQ5_K>(w, first, count, rows, tile, scratch);
        case Type::Q6_K:
            return quantized<UnpackQ6_K>(w, first, count, rows, tile, scratch);
        case Type::IQ1_S:
            return quantized<UnpackIQ1_S>(w, first, count, rows, tile, scratch);
        case Type::IQ1_M:
            return quantized<UnpackIQ1_M>(w, first, count, rows, tile, scratch);
        case Type::IQ2_XXS:
            return quantized<UnpackIQ2_XXS>(w, first, count, rows, tile, scratch);
        case Type::IQ2_XS:
            return quantized<UnpackIQ2_XS>(w, first, count, rows, tile, scratch);
        case Type::IQ2_S:
            return quantized<UnpackIQ2_S>(w, first, count, rows, tile, scratch);
        case Type::IQ3_XXS:
            return quantized<UnpackIQ3_XXS>(w, first, count, rows, tile, scratch);
        case Type::IQ3_S:
            return quantized<UnpackIQ3_S>(w, first, count, rows, tile, scratch);
        case Type::IQ4_NL:
            return quantized<UnpackIQ4_NL>(w, first, count, rows, tile, scratch);
        case Type::IQ4_XS:
            return quantized<UnpackIQ4_XS>(w, first, count, rows, tile, scratch);
        case Type::MXFP4:
            return quantized<UnpackMXFP4>(w, first, count, rows, tile, scratch);
        default:
            break;  // load_weights() lets no other type through
    }
}
