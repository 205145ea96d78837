// How a tile brings the weights of a panel together with several activation rows: by dot4(), a lane per
// weight row. A vocabulary may have a Tile of its own instead.

struct Dot4Tile {
    // Brings 64 columns of 16 rows, `stride` bytes apart, into the order that add_dots() reads: by words of
    // four columns.
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        for (int column = 0; column < 64; column += 16) {
            I by_word[4];
            transpose_words([&](int r) { return rows + r * stride + column; }, by_word);
            for (int w = 0; w < 4; w++) store_bytes(words + (column / 4 + w) * 64, by_word[w]);
        }
    }

    // dots[i] += the products of `columns` columns of the 16 weight rows with q[i][column...], i < n; a lane
    // per weight row, exact.
    template <int columns, bool wide, int n>
    HY3_INLINE void add_dots(const uint8_t* words, const int8_t* const* q, int64_t column, I* dots) {
        for (int word = 0; word < columns / 4; word++) {
            const I w = load_bytes(words + word * 64);
            for (int i = 0; i < n; i++) dots[i] = dot4<wide>(dots[i], w, repeat4(q[i] + column + 4 * word));
        }
    }
};
