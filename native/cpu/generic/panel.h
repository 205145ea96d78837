// Sixteen weight rows of a quantized format, some columns at a time, in the one form that all formats are
// brought to: unsigned bytes u, and per group of columns a scale and (for some formats) a bias, so that
// w = scale * (u - offset) + bias.

// Columns that are unpacked at a time: they and their activations fit the first-level cache.
constexpr int kColumns = 512;

// Four words, 16 bytes, of each of 16 rows: words[w] has word w, a lane per row.
template <typename RowAt>
HY3_INLINE void transpose_words(RowAt row, I words[4]) {
    I quads[4];  // rows i, i + 4, i + 8, i + 12
    for (int i = 0; i < 4; i++) quads[i] = load_quarters(row(i), row(i + 4), row(i + 8), row(i + 12));
    transpose_quarters(quads[0], quads[1], quads[2], quads[3], words);
}

struct Panel {
    static constexpr int64_t stride =
        kColumns + 64;  // so that the rows do not fall on the same sets of the cache
    static constexpr int lanes = kColumns / 16 * kPanel;  // by group, a lane per row

    alignas(64) uint8_t rows[kPanel * stride];
    alignas(64) uint8_t words[kPanel * kColumns];  // the same, as Tile orders them
    alignas(64) float scale[lanes];
    alignas(64) float bias[lanes];
};
