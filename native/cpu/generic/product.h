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

// Columns unpacked at a time.
constexpr int kColumns = 256;

// 16 weight rows unpacked: columns [column, column + columns) to s.rows, s.scale and s.bias.
using UnpackPanel = void (*)(const uint8_t* const* rows, int64_t column, int columns, Scratch& s);

template <typename Format>
static void unpack_panel(const uint8_t* const* rows, int64_t column, int columns, Scratch& s) {
    const int64_t first = column / Format::elements;
    for (int r = 0; r < kPanel; r++) {
        using Block = typename Format::Block;
        const auto* blocks = reinterpret_cast<const Block*>(rows[r]) + first;
        // The next columns of the row, so that they are on their way while these are computed.
        __builtin_prefetch(reinterpret_cast<const uint8_t*>(blocks + columns / Format::elements));
        __builtin_prefetch(reinterpret_cast<const uint8_t*>(blocks + columns / Format::elements) + 64);
        for (int b = 0; b * Format::elements < columns; b++) {
            constexpr int groups = Format::elements / Format::group;
            Format::unpack(blocks[b], s.rows + r * kColumns + b * Format::elements,
                           s.scale + r + b * groups * kPanel, s.bias + r + b * groups * kPanel);
        }
    }
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
    HY3_INLINE F accumulate(F acc, I dots, int g, const Scratch& s, float x_scale, float x_float_sum) {
        acc = fma(to_float(dots), mul(load(s.scale + g * kPanel), set1(x_scale)), acc);
        if constexpr (has_bias) acc = fma(load(s.bias + g * kPanel), set1(x_float_sum), acc);
        return acc;
    }

    // One activation row: dots of each weight row with it, then a lane per weight row.
    static void single(int offset, const QuantizedRows& x, int64_t row, int64_t column, int columns,
                       const Scratch& s, float* tile) {
        const int8_t* q = x.q + row * x.stride + column;
        const float* scale = x.scale + row * (x.stride / 32) + column / 32;
        const int32_t* sum = sums(x, row) + column / group;
        const float* float_sum = float_sums(x, row) + column / group;
        F acc = load(tile);
        for (int first = 0; first < columns; first += 64) {
            const I activations = load_bytes(q + first);
            I quads[4];
            for (int i = 0; i < 4; i++) {
                const uint8_t* weights = s.rows + 4 * i * kColumns + first;
                I dots[4];
                for (int r = 0; r < 4; r++)
                    dots[r] = dot4<wide>(iset1(0), load_bytes(weights + r * kColumns), activations);
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

    // To panel[word][row]: the 16 rows' four bytes of each word of columns side by side.
    static void transpose(int columns, Scratch& s) {
        for (int first = 0; first < columns; first += 64) {
            I words[4][4];  // [row quad][word within a quarter]
            for (int i = 0; i < 4; i++) {
                const uint8_t* rows = s.rows + 4 * i * kColumns + first;
                transpose_quarters(load_bytes(rows), load_bytes(rows + kColumns),
                                   load_bytes(rows + 2 * kColumns), load_bytes(rows + 3 * kColumns),
                                   words[i]);
            }
            for (int w = 0; w < 4; w++) {
                I quarters[4];
                gather_quarters(words[0][w], words[1][w], words[2][w], words[3][w], quarters);
                for (int j = 0; j < 4; j++)
                    store_bytes(s.panel + first * kPanel + (4 * j + w) * 64, quarters[j]);
            }
        }
    }

    // n activation rows at once, n known to the compiler.
    template <int n>
    static void block(int offset, const QuantizedRows& x, const int64_t* rows, int64_t column, int columns,
                      const Scratch& s, float* tile) {
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
            const uint8_t* weights = s.panel + g * group * kPanel;
            for (int word = 0; word < group / 4; word++) {
                const I w = load_bytes(weights + word * 64);
                for (int i = 0; i < n; i++)
                    dots[i] = dot4<wide>(dots[i], w, repeat4(q[i] + g * group + 4 * word));
            }
            for (int i = 0; i < n; i++)
                acc[i] = accumulate(acc[i], dots[i], g, s, scale[i][g * group / 32], float_sum[i][g]);
        }
        for (int i = 0; i < n; i++) store(tile + i * kPanel, acc[i]);
    }

    // Activation rows taken together, so that the tile and their part of the columns stay in the cache.
    static constexpr int64_t kRowsAtOnce = 256;

    static void run(UnpackPanel unpack, int offset, const Matrix& w, int64_t first, int count,
                    const ProductRows& rows, float* tile, Scratch& s) {
        const uint8_t* weights[kPanel];
        for (int r = 0; r < kPanel; r++) weights[r] = w.row(first + (r < count ? r : count - 1));
        for (int64_t i = 0; i < rows.n * kPanel; i++) tile[i] = 0.0f;
        for (int64_t begin = 0; begin < rows.n; begin += kRowsAtOnce) {
            const int64_t end = rows.n < begin + kRowsAtOnce ? rows.n : begin + kRowsAtOnce;
            for (int64_t column = 0; column < w.cols; column += kColumns) {
                const int columns = static_cast<int>(w.cols - column < kColumns ? w.cols - column : kColumns);
                unpack(weights, column, columns, s);
                run_columns(offset, rows, begin, end, column, columns, tile, s);
            }
        }
    }

    static void run_columns(int offset, const ProductRows& rows, int64_t begin, int64_t end, int64_t column,
                            int columns, float* tile, Scratch& s) {
        const QuantizedRows& x = *rows.q;
        const auto at = [&](int64_t i) { return rows.index != nullptr ? rows.index[i] : i; };
        if (end - begin == 1) {
            single(offset, x, at(begin), column, columns, s, tile + begin * kPanel);
            return;
        }
        transpose(columns, s);
        int64_t i = begin;
        for (; i + kRowBlock <= end; i += kRowBlock) {
            int64_t block_rows[kRowBlock];
            for (int r = 0; r < kRowBlock; r++) block_rows[r] = at(i + r);
            block<kRowBlock>(offset, x, block_rows, column, columns, s, tile + i * kPanel);
        }
        if constexpr (kRowBlock > 4) {
            for (; i + 4 <= end; i += 4) {
                const int64_t block_rows[4] = {at(i), at(i + 1), at(i + 2), at(i + 3)};
                block<4>(offset, x, block_rows, column, columns, s, tile + i * kPanel);
            }
        }
        for (; i < end; i++) {
            const int64_t row = at(i);
            block<1>(offset, x, &row, column, columns, s, tile + i * kPanel);
        }
    }
};

template <typename Format>
HY3_INLINE void quantized(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                          Scratch& s) {
    QuantizedProduct<Format::group, Format::wide, Format::has_bias>::run(unpack_panel<Format>, Format::offset,
                                                                         w, first, count, rows, tile, s);
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

    static void run(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    Scratch&) {
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
                    Scratch& s) {
    switch (w.type) {
        case Type::F32:
            return FloatProduct<LoadF32>::run(w, first, count, rows, tile, s);
        case Type::F16:
            return FloatProduct<LoadF16>::run(w, first, count, rows, tile, s);
        case Type::BF16:
            return FloatProduct<LoadBF16>::run(w, first, count, rows, tile, s);
        case Type::Q4_0:
            return quantized<UnpackQ4_0>(w, first, count, rows, tile, s);
        case Type::Q4_1:
            return quantized<UnpackQ4_1>(w, first, count, rows, tile, s);
        case Type::Q5_0:
            return quantized<UnpackQ5_0>(w, first, count, rows, tile, s);
        case Type::Q5_1:
            return quantized<UnpackQ5_1>(w, first, count, rows, tile, s);
        case Type::Q8_0:
            return quantized<UnpackQ8_0>(w, first, count, rows, tile, s);
        case Type::Q2_K:
            return quantized<UnpackQ2_K>(w, first, count, rows, tile, s);
        case Type::Q3_K:
            return quantized<UnpackQ3_K>(w, first, count, rows, tile, s);
        case Type::Q4_K:
            return quantized<UnpackQ4_K>(w, first, count, rows, tile, s);
        case Type::Q5_K:
            return quantized<UnpackQ5_K>(w, first, count, rows, tile, s);
        case Type::Q6_K:
            return quantized<UnpackQ6_K>(w, first, count, rows, tile, s);
        case Type::IQ1_S:
            return quantized<UnpackIQ1_S>(w, first, count, rows, tile, s);
        case Type::IQ1_M:
            return quantized<UnpackIQ1_M>(w, first, count, rows, tile, s);
        case Type::IQ2_XXS:
            return quantized<UnpackIQ2_XXS>(w, first, count, rows, tile, s);
        case Type::IQ2_XS:
            return quantized<UnpackIQ2_XS>(w, first, count, rows, tile, s);
        case Type::IQ2_S:
            return quantized<UnpackIQ2_S>(w, first, count, rows, tile, s);
        case Type::IQ3_XXS:
            return quantized<UnpackIQ3_XXS>(w, first, count, rows, tile, s);
        case Type::IQ3_S:
            return quantized<UnpackIQ3_S>(w, first, count, rows, tile, s);
        case Type::IQ4_NL:
            return quantized<UnpackIQ4_NL>(w, first, count, rows, tile, s);
        case Type::IQ4_XS:
            return quantized<UnpackIQ4_XS>(w, first, count, rows, tile, s);
        case Type::MXFP4:
            return quantized<UnpackMXFP4>(w, first, count, rows, tile, s);
        default:
            break;  // load_weights() lets no other type through
    }
}
