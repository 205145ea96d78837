// How a tile brings the weights of a panel together with activation rows: by dot4(). A vocabulary may have a
// Tile of its own instead.

struct Dot4Tile {
    // One activation row: out[i] = the products of columns [i * group, (i + 1) * group) of the 16 weight
    // rows, `stride` bytes apart, with q; a lane per weight row, exact.
    template <int group, bool wide>
    HY3_INLINE void dot_rows(const uint8_t* rows, int64_t stride, const int8_t* q, I out[64 / group]) {
        const I activations = load_bytes(q);
        I quads[4];
        for (int i = 0; i < 4; i++) {
            I dots[4];
            for (int r = 0; r < 4; r++)
                dots[r] = dot4<wide>(iset1(0), load_bytes(rows + (4 * i + r) * stride), activations);
            quads[i] = sum_quarters(dots[0], dots[1], dots[2], dots[3]);
        }
        I by16[4];  // sums of 16 columns each
        gather_quarters(quads[0], quads[1], quads[2], quads[3], by16);
        for (int part = 0; part < 64 / group; part++)
            out[part] = group == 16 ? by16[part] : iadd(by16[(2 * part) & 3], by16[(2 * part + 1) & 3]);
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

    // Several: dots[i] += the products of `columns` columns of the 16 weight rows with q[i][column...], i <
    // n; a lane per weight row, exact.
    template <int columns, bool wide, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        for (int word = 0; word < columns / 4; word++) {
            const I w = load_bytes(words + word * 64);
            for (int i = 0; i < n; i++) dots[i] = dot4<wide>(dots[i], w, repeat4(q[i] + column + 4 * word));
        }
    }
};
