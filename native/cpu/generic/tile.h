// How a tile brings the weights of a panel together with several activation rows: by dot4(), a lane per
// weight row. A vocabulary may have a Tile of its own instead.

// The 4x4 blocks of four rows of 64 bytes are words of the panel: out[word][row], the 16 rows' four bytes of
// each of 16 words side by side.
HY3_INLINE void transpose_words(const void* first_row, int64_t stride, void* out) {
    const auto* rows = static_cast<const uint8_t*>(first_row);
    auto* to = static_cast<uint8_t*>(out);
    I words[4][4];  // [row quad][word within a quarter]
    for (int i = 0; i < 4; i++) {
        const uint8_t* quad = rows + 4 * i * stride;
        transpose_quarters(load_bytes(quad), load_bytes(quad + stride), load_bytes(quad + 2 * stride),
                           load_bytes(quad + 3 * stride), words[i]);
    }
    for (int w = 0; w < 4; w++) {
        I quarters[4];
        gather_quarters(words[0][w], words[1][w], words[2][w], words[3][w], quarters);
        for (int j = 0; j < 4; j++) store_bytes(to + (4 * j + w) * 64, quarters[j]);
    }
}

struct Dot4Tile {
    // Brings 64 columns of 16 rows, `stride` bytes apart, into the order that add_dots() reads.
    HY3_INLINE void interleave(const uint8_t* rows, int64_t stride, uint8_t* words) {
        transpose_words(rows, stride, words);
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
