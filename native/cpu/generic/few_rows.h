// A few rows of activations times 16 quantized weight rows. The codes are multiplied as they are unpacked: no
// panel of them is written and read again, except for formats that are unpacked 256 columns at a time. With
// more rows transposing the codes pays.

// Where four weight rows share a vector, sums of their lanes take half of the shuffles, and a shift serves
// four rows.
template <typename Format>
constexpr bool by_quads =
    kDottedRowsOfQuads > 0 && requires(const FourRows& rows, I* out) { Format::quads(rows, 0, 0, out); };

// So many rows are few. The codes of Q8_0 need next to no unpacking, which transposing does once for all
// rows.
template <typename Format>
constexpr int dotted_rows = by_quads<Format> ? kDottedRowsOfQuads : 2;
template <>
constexpr int dotted_rows<UnpackQ8_0> = kDottedRowsQ8_0;

// Adds the groups of 64 columns, or of the 32 that are left, to the sums of an activation row.
template <typename Format>
HY3_INLINE F add_64(F acc, const I* dots, int first, int columns, const Panel& s,
                    const ActivationRow<Format::group>& x) {
    constexpr int group = Format::group;
    for (int part = 0; part < 64 / group; part++) {
        if (first + part * group >= columns) break;
        const int g = first / group + part;
        I sum = dots[part];
        if constexpr (Format::offset != 0) sum = iadd(sum, iset1(-Format::offset * x.sum[g]));
        acc = add_group<group, Format::has_bias>(acc, sum, g, s, x);
    }
    return acc;
}

// Calls body(first, codes) for each 64 columns of the span, with codes(r) those of weight row r.
template <typename Format, typename Body>
HY3_INLINE void for_codes(const uint8_t* const* rows, int64_t column, int columns, Ahead& ahead, Panel& panel,
                          const Body& body) {
    if constexpr (by_64<Format>) {
        using Block = typename Format::Block;
        const Block* blocks[kPanel];
        for (int r = 0; r < kPanel; r++)
            blocks[r] = reinterpret_cast<const Block*>(rows[r]) + column / Format::elements;
        constexpr int64_t bytes = sizeof(Block) * 64 / Format::elements;  // of 64 columns
        for_each_64<Format>(columns, [&](int step, auto codes) {
            body(64 * step, [&](int r) {
                ahead.ask<bytes, 3>();
                return codes(blocks[r]);
            });
        });
    } else {
        unpack_codes<Format>(rows, column, columns, ahead, panel);
        for (int first = 0; first < columns; first += 64)
            body(first, [&](int r) { return load_bytes(panel.rows + r * Panel::stride + first); });
    }
}

// What Tile::dot_rows() does, with four rows a vector.
template <typename Format, int n>
HY3_INLINE void dot_quads(const uint8_t* const* rows, int64_t first, int64_t second, const int8_t* const* q,
                          Ahead& ahead, I (*dots)[2]) {
    static_assert(Format::group == 32);
    constexpr int64_t bytes = sizeof(typename Format::Block) * 256 / Format::elements;  // of a vector's 64
    I x[n][4], sums[n][2][4];
    for (int i = 0; i < n; i++)
        for (int part = 0; part < 4; part++) x[i][part] = repeat16(q[i] + 16 * part);
    for (int r = 0; r < 4; r++) {
        ahead.ask<bytes, 3>();
        I codes[4];
        Format::quads({rows[r], rows[r + 4], rows[r + 8], rows[r + 12]}, first, second, codes);
        for (int i = 0; i < n; i++)
            for (int g = 0; g < 2; g++) {
                const I half = dot4<Format::code_bits>(iset1(0), codes[2 * g], x[i][2 * g]);
                sums[i][g][r] = dot4<Format::code_bits>(half, codes[2 * g + 1], x[i][2 * g + 1]);
            }
    }
    for (int i = 0; i < n; i++)
        for (int g = 0; g < 2; g++) {
            const auto& of = sums[i][g];
            dots[i][g] = sum_quarters(of[0], of[1], of[2], of[3]);
        }
}

// Not inlined: of one large function for all formats gcc makes worse code, with two rows a sixth slower.
template <typename Format, int n>
[[gnu::noinline]] static void few_rows(const Matrix& w, const uint8_t* const* weights,
                                       const ProductRows& rows, float* tile, Panel& panel,
                                       const uint8_t* next) {
    F acc[n];
    for (int i = 0; i < n; i++) acc[i] = set1(0.0f);
    Ahead ahead(next, weights[0]);
    for (int64_t column = 0; column < w.cols; column += kColumns) {
        const int columns = static_cast<int>(w.cols - column < kColumns ? w.cols - column : kColumns);
        ActivationRow<Format::group> x[n];
        for (int i = 0; i < n; i++) x[i] = ActivationRow<Format::group>::of(*rows.q, rows.row(i), column);
        unpack_scales<Format>(weights, column, columns, ahead, panel);
        const int8_t* q[n];
        I dots[n][64 / Format::group];
        const auto add_from = [&](int first) {
            for (int i = 0; i < n; i++) acc[i] = add_64<Format>(acc[i], dots[i], first, columns, panel, x[i]);
        };
        if constexpr (by_quads<Format>) {
            for (int first = 0; first < columns; first += 64) {
                for (int i = 0; i < n; i++) q[i] = x[i].q + first;
                // Beside the last of an odd number of groups stand any codes, as in for_each_64().
                const int second = first + 32 < columns ? first + 32 : first;
                dot_quads<Format, n>(weights, column + first, column + second, q, ahead, dots);
                add_from(first);
            }
        } else {
            for_codes<Format>(weights, column, columns, ahead, panel, [&](int first, const auto& codes) {
                for (int i = 0; i < n; i++) q[i] = x[i].q + first;
                Tile::template dot_rows<Format::group, Format::code_bits, n>(codes, q, dots);
                add_from(first);
            });
        }
    }
    for (int i = 0; i < n; i++) store(tile + i * kPanel, acc[i]);
}
