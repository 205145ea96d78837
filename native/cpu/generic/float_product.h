// Products of a panel of 16 float weight rows: for each weight row and each activation row 16 sums by column,
// each a chain of fma in the order of columns, added up in one fixed tree. How the work is cut into blocks
// changes no bit.

// What a block keeps sums of: whole vectors. A vocabulary may have a FloatPart of its own, a part of a
// vector, so that sums of more rows fit the registers and each row is loaded less often.
struct WholeVector {
    using Value = F;
    static constexpr int lanes = 16;
    static constexpr int weights = kFloatWeights;  // weight rows and
    static constexpr int rows = kFloatRows;        // activation rows of a block
    static constexpr bool asks = false;            // for the next panel, see Ahead
    HY3_INLINE F of_f32(const float* p) { return load(p); }
    HY3_INLINE F of_f16(const uint16_t* p) { return load_f16(p); }
    HY3_INLINE F of_bf16(const uint16_t* p) { return load_bf16(p); }
};

struct LoadF32 {
    using Value = float;
    HY3_INLINE F vector(const float* p) { return load(p); }
    HY3_INLINE auto part(const float* p) { return FloatPart::of_f32(p); }
};
struct LoadF16 {
    using Value = uint16_t;
    HY3_INLINE F vector(const uint16_t* p) { return load_f16(p); }
    HY3_INLINE auto part(const uint16_t* p) { return FloatPart::of_f16(p); }
};
struct LoadBF16 {
    using Value = uint16_t;
    HY3_INLINE F vector(const uint16_t* p) { return load_bf16(p); }
    HY3_INLINE auto part(const uint16_t* p) { return FloatPart::of_bf16(p); }
};

// Columns after which the next weight rows are multiplied with the same activations: a span of a block's rows
// fits the first-level cache, from where the parts of its vectors are read one after the other.
constexpr int64_t kFloatSpan = 512;

// Sums of a panel and the activation rows of a block, between spans.
struct FloatSums {
    alignas(64) float chains[FloatPart::rows][kPanel][16];
};
static_assert(sizeof(FloatSums) <= sizeof(Panel));

template <typename Load>
struct FloatProduct {
    using Value = typename Load::Value;
    static constexpr int m = FloatPart::weights;

    // `columns`, whole vectors, of m weight rows times n activation rows, for the lanes of one part: all
    // pointers are to its first.
    template <int n, bool asks>
    HY3_INLINE void add_part(const Value* const (&w)[m], const float* const (&x)[n], int64_t columns,
                             float* chains, Ahead& ahead) {
        typename FloatPart::Value acc[m][n];
        for (int a = 0; a < m; a++)
            for (int b = 0; b < n; b++) acc[a][b] = FloatPart::of_f32(chains + (b * kPanel + a) * 16);
        for (int64_t c = 0; c < columns; c += 16) {
            if constexpr (asks) ahead.ask<m * 16 * sizeof(Value), 4>();
            typename FloatPart::Value v[n];
            for (int b = 0; b < n; b++) v[b] = FloatPart::of_f32(x[b] + c);
            for (int a = 0; a < m; a++) {
                const auto u = Load::part(w[a] + c);
                for (int b = 0; b < n; b++) acc[a][b] = fma(u, v[b], acc[a][b]);
            }
        }
        for (int a = 0; a < m; a++)
            for (int b = 0; b < n; b++) store(chains + (b * kPanel + a) * 16, acc[a][b]);
    }

    // Columns [from, from + columns) of m weight rows, from row r of the panel on, times n activation rows.
    // last: no more activation rows will be multiplied with this panel.
    template <int n>
    HY3_INLINE void add_span(const Value* const* weights, int r, const float* const* activations,
                             int64_t from, int64_t columns, FloatSums& sums, bool last, Ahead& ahead) {
        for (int lane = 0; lane < 16; lane += FloatPart::lanes) {
            const Value* w[m];
            const float* x[n];
            for (int a = 0; a < m; a++) w[a] = weights[r + a] + from + lane;
            for (int b = 0; b < n; b++) x[b] = activations[b] + from + lane;
            float* chains = sums.chains[0][r] + lane;
            if (FloatPart::asks && last && lane == 0)
                add_part<n, true>(w, x, columns, chains, ahead);
            else
                add_part<n, false>(w, x, columns, chains, ahead);
        }
    }

    // The columns from `from` on, fewer than a vector has.
    static void add_rest(const Value* const* weights, int count, const float* const* activations, int n,
                         int64_t from, int columns, FloatSums& sums) {
        for (int r = 0; r < count; r++) {
            Value values[16] = {};
            for (int c = 0; c < columns; c++) values[c] = weights[r][from + c];
            for (int i = 0; i < n; i++) {
                const F x = load_first(activations[i] + from, columns);
                store(sums.chains[i][r], fma(Load::vector(values), x, load(sums.chains[i][r])));
            }
        }
    }

    // The 16 results of an activation row, each as sum_tree() would add its chains.
    HY3_INLINE F add_up(const float (*chains)[16]) {
        F quads[4], quarters[4];
        for (int four = 0; four < 4; four++) {
            const float (*x)[16] = chains + 4 * four;
            quads[four] = sum_quarters(load(x[0]), load(x[1]), load(x[2]), load(x[3]));
        }
        gather_quarters(quads[0], quads[1], quads[2], quads[3], quarters);
        return add(add(quarters[0], quarters[1]), add(quarters[2], quarters[3]));
    }

    // n activation rows, all columns.
    template <int n>
    static void block(const Matrix& w, const Value* const* weights, int count, const float* const* x,
                      FloatSums& sums, bool last, Ahead& ahead, float* tile) {
        for (int i = 0; i < n; i++)
            for (int r = 0; r < kPanel; r++) store(sums.chains[i][r], set1(0.0f));
        const int64_t vectors = w.cols / 16, spans = (16 * vectors + kFloatSpan - 1) / kFloatSpan;
        for (int64_t span = 0; span < spans; span++) {
            const int64_t from = vectors * span / spans * 16, to = vectors * (span + 1) / spans * 16;
            for (int r = 0; r < count; r += m) add_span<n>(weights, r, x, from, to - from, sums, last, ahead);
        }
        if (16 * vectors < w.cols)
            add_rest(weights, count, x, n, 16 * vectors, static_cast<int>(w.cols - 16 * vectors), sums);
        for (int i = 0; i < n; i++) store(tile + i * kPanel, add_up(sums.chains[i]));
    }

    // The block of `size` rows, size <= n.
    template <int n, typename... Args>
    HY3_INLINE void some_rows(int64_t size, Args&... args) {
        if constexpr (n > 1) {
            if (size < n) return some_rows<n - 1>(size, args...);
        }
        block<n>(args...);
    }

    static void run(const Matrix& w, int64_t first, int count, const ProductRows& rows, float* tile,
                    void* scratch, const uint8_t* next) {
        auto& sums = *static_cast<FloatSums*>(scratch);
        const Value* weights[kPanel];
        for (int r = 0; r < kPanel; r++)
            weights[r] = reinterpret_cast<const Value*>(w.row(first + (r < count ? r : count - 1)));
        Ahead ahead(next, w.row(first));
        for (int64_t done = 0; done < rows.n;) {
            // Blocks of nearly the same size: four rows as two and two, not three and one.
            const int64_t left = rows.n - done, blocks = (left + FloatPart::rows - 1) / FloatPart::rows;
            const int64_t size = (left + blocks - 1) / blocks;
            const float* x[FloatPart::rows];
            for (int64_t i = 0; i < FloatPart::rows; i++)
                x[i] = rows.f + rows.row(done + (i < size ? i : size - 1)) * w.cols;
            const bool last = blocks == 1;
            float* out = tile + done * kPanel;
            some_rows<FloatPart::rows>(size, w, weights, count, x, sums, last, ahead, out);
            done += size;
        }
    }
};
