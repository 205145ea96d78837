// How a tile brings the weights of a panel together with activation rows: by dot4(). A vocabulary may have a
// Tile of its own instead.

struct Dot4Tile {
    // 64 columns of 16 weight rows, codes(r) those of row r, times n activation rows: out[i] has the products
    // with q[i] by groups of columns, a lane per weight row, exact.
    template <int group, int code_bits, int n, typename Codes>
    HY3_INLINE void dot_rows(const Codes& codes, const int8_t* const* q, I (*out)[64 / group]) {
        I quads[n][4];
        for (int four = 0; four < 4; four++) {
            I dots[n][4];
            for (int r = 0; r < 4; r++) {
                const I row = codes(4 * four + r);
                for (int i = 0; i < n; i++) dots[i][r] = dot4<code_bits>(iset1(0), row, load_bytes(q[i]));
            }
            for (int i = 0; i < n; i++)
                quads[i][four] = sum_quarters(dots[i][0], dots[i][1], dots[i][2], dots[i][3]);
        }
        for (int i = 0; i < n; i++) {
            I by16[4];  // sums of 16 columns each
            gather_quarters(quads[i][0], quads[i][1], quads[i][2], quads[i][3], by16);
            for (int part = 0; part < 64 / group; part++)
                out[i][part] =
                    group == 16 ? by16[part] : iadd(by16[(2 * part) & 3], by16[(2 * part + 1) & 3]);
        }
    }

    // Brings 64 columns of 16 rows, `stride` bytes apart, into the order that add_dots() reads: by words of
    // four columns.
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        for (int column = 0; column < 64; column += 16) {
            I by_word[4];
            transpose_words([&](int r) { return rows + r * stride + column; }, by_word);
            for (int w = 0; w < 4; w++) store_bytes(words + (column / 4 + w) * 64, by_word[w]);
        }
    }

    // dots[i] += the products of `columns` columns of the 16 weight rows with q[i][column...], i <
    // n; a lane per weight row, exact.
    template <int columns, int code_bits, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        for (int word = 0; word < columns / 4; word++) {
            const I w = load_bytes(words + word * 64);
            for (int i = 0; i < n; i++)
                dots[i] = dot4<code_bits>(dots[i], w, repeat4(q[i] + column + 4 * word));
        }
    }
};
