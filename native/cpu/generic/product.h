// Products of a panel of 16 weight rows with any number of activation rows.
//
// Quantized weights: for each output, over the groups of columns in order,
//   acc = fma(dot, scale_w * scale_x, acc)    dot: the exact integer sum of the group
//   acc = fma(bias_w, scale_x * sum_x, acc)   where the format has minima
// Both paths below do exactly this, so which of them runs changes no bit: for one or two activation rows the
// 16 weight rows are dotted one by one and the sums transposed; for more, the weights are transposed once and
// every activation row uses them, a lane per weight row.
//
// Float weights: 16 sums by column, each a chain of fma, added up in one fixed tree.

// Unpacks columns [column, column + columns) of 16 rows.
using UnpackPanel = void (*)(const uint8_t* const* rows, int64_t column, int columns, Panel& panel);

template <typename Format>
static void unpack_panel(const uint8_t* const* rows, int64_t column, int columns, Panel& panel) {
    using Block = typename Format::Block;
    const int64_t blocks = columns / Format::elements;
    for (int64_t r = 0; r < kPanel; r++) {
        const auto* from = reinterpret_cast<const Block*>(rows[r]) + column / Format::elements;
        uint8_t* u = panel.rows + r * Panel::stride;
        // Ask for the row's next columns: the turn comes back to it after the other 15 rows.
        const auto* next = reinterpret_cast<const uint8_t*>(from + blocks);
        for (int64_t line = 0; line < blocks * static_cast<int64_t>(sizeof(Block)); line += 64)
            __builtin_prefetch(next + line, 0, 2);
        if constexpr (Format::elements == 32) {
            // Beside the last block of an odd number: any codes, since activations are zero there.
            for (int64_t b = 0; b < blocks; b += 2)
                store_bytes(u + 32 * b, Format::codes(from[b], from[b + 1 < blocks ? b + 1 : b]));
            for (int64_t b = 0; b < blocks; b++) Format::scales(from[b], panel, b, r);
        } else {
            for (int64_t b = 0; b < blocks; b++) Format::codes(from[b], u + 256 * b);
        }
    }
    if constexpr (Format::elements == 32) {
        Format::widen(panel, blocks);
    } else {
        constexpr int lanes = Format::elements / Format::group * kPanel;
        const int64_t first = column / Format::elements;
        for (int64_t b = 0; b < blocks; b++)
            Format::scales({rows, (first + b) * static_cast<int64_t>(sizeof(Block))}, panel.scale + b * lanes,
                           panel.bias + b * lanes);
    }
}

// So many activation rows at most are dotted one by one: transposing the weights would cost more.
constexpr int64_t kSingles = 2;

// The arithmetic, for all formats that have these in common (see panel.h).
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
            I dots[64 / group];
            Tile::template dot_rows<group, wide>(s.rows + first, Panel::stride, q + first, dots);
            for (int part = 0; part < 64 / group; part++) {
                const int g = first / group + part;
                if (first + part * group >= columns) break;
                const I correction = iset1(-offset * sum[g]);
                acc =
                    accumulate(acc, iadd(dots[part], correction), g, s, scale[g * group / 32], float_sum[g]);
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
        if (rows.n <= kSingles) {
            for (int64_t i = 0; i < rows.n; i++)
                single(offset, *rows.q, rows.index != nullptr ? rows.index[i] : i, column, columns, s,
                       tile + i * kPanel);
            return;
        }
        for (int first = 0; first < columns; first += 64)
            Tile::interleave(s.rows + first, Panel::stride, s.words + first * kPanel);
        int64_t i = 0;
        for (; i + kRowBlock <= rows.n; i += kRowBlock)
            some_rows<kRowBlock>(kRowBlock, i, offset, rows, column, columns, tile, s);
        if constexpr (kRowBlock > 1) {
            if (i < rows.n) some_rows<kRowBlock - 1>(rows.n - i, i, offset, rows, column, columns, tile, s);
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
        for (int r = 0; r < n; r++) block_rows[r] = rows.index != nullptr ? rows.index[first + r] : first + r;
        block<n>(offset, *rows.q, block_rows, column, columns, s, tile + first * kPanel);
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

// Chains of a panel and some activation rows, between spans of columns.
constexpr int kFloatBatch = 8;
struct FloatSums {
    alignas(64) float chains[kFloatBatch][kPanel][16];
};
static_assert(sizeof(FloatSums) <= sizeof(Panel));

// Columns after which the same weights are used by the next activation rows: a span of both fits the
// first-level cache.
constexpr int64_t kFloatSpan = 512;

template <typename Load>
struct FloatProduct {
    using Value = typename Load::Value;

    // m weight rows, from row r of the panel on, times n activation rows, from row i of the batch on; columns
    // [from, to).
    template <int m, int n>
    HY3_INLINE void block(const Value* const* weights, const float* const* activations, int64_t from,
                          int64_t to, int64_t i, int64_t r, FloatSums& sums) {
        const Value* w[m];
        const float* x[n];
        for (int a = 0; a < m; a++) w[a] = weights[r + a];
        for (int b = 0; b < n; b++) x[b] = activations[i + b];
        F acc[m][n];
        for (int a = 0; a < m; a++)
            for (int b = 0; b < n; b++) acc[a][b] = from == 0 ? set1(0.0f) : load(sums.chains[i + b][r + a]);
        int64_t c = from;
        for (; c + 16 <= to; c += 16) {
            F v[n];
            for (int b = 0; b < n; b++) v[b] = load(x[b] + c);
            for (int a = 0; a < m; a++) {
                const F u = Load::vector(w[a] + c);
                for (int b = 0; b < n; b++) acc[a][b] = fma(u, v[b], acc[a][b]);
            }
        }
        if (c < to) {
            const int rest = static_cast<int>(to - c);
            for (int a = 0; a < m; a++) {
                float lanes[16] = {};
                for (int k = 0; k < rest; k++) lanes[k] = Load::scalar(w[a] + c + k);
                const F u = load(lanes);
                for (int b = 0; b < n; b++) acc[a][b] = fma(u, load_first(x[b] + c, rest), acc[a][b]);
            }
        }
        for (int a = 0; a < m; a++)
            for (int b = 0; b < n; b++) store(sums.chains[i + b][r + a], acc[a][b]);
    }

    // The `count` rows from row i on, count <= n: with the block of that size.
    template <int n>
    static void some_rows(int64_t count, const Value* const* w, const float* const* x, int64_t from,
                          int64_t to, int64_t i, int64_t r, FloatSums& sums) {
        if constexpr (n > 1) {
            if (count < n) return some_rows<n - 1>(count, w, x, from, to, i, r, sums);
        }
        block<kFloatWeights, n>(w, x, from, to, i, r, sums);
    }

    static void run(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    void* scratch) {
        auto& sums = *static_cast<FloatSums*>(scratch);
        const Value* weights[kPanel];
        for (int r = 0; r < kPanel; r++)
            weights[r] = reinterpret_cast<const Value*>(w.row(first + (r < count ? r : count - 1)));
        for (int64_t done = 0; done < rows.n; done += kFloatBatch) {
            const int64_t n = rows.n - done < kFloatBatch ? rows.n - done : kFloatBatch;
            const float* x[kFloatBatch];
            for (int64_t i = 0; i < n; i++)
                x[i] = rows.f + (rows.index != nullptr ? rows.index[done + i] : done + i) * w.cols;
            const int64_t span = n <= kFloatRows ? w.cols : kFloatSpan;
            for (int64_t from = 0; from < w.cols; from += span) {
                const int64_t to = from + span < w.cols ? from + span : w.cols;
                for (int r = 0; r < count; r += kFloatWeights)
                    for (int64_t i = 0; i < n; i += kFloatRows)
                        some_rows<kFloatRows>(n - i, weights, x, from, to, i, r, sums);
            }
            for (int64_t i = 0; i < n; i++)
                for (int r = 0; r < count; r++)
                    tile[(done + i) * kPanel + r] = sum_tree(load(sums.chains[i][r]));
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
