// Columns of 16 rows, brought to a panel.

// Formats whose codes come 64 columns at a time, from two blocks of 32 or from a quarter of a super-block.
template <typename Format>
constexpr bool by_64 =
    Format::elements == 32 || requires(const typename Format::Block& b) { Format::template codes<0>(b); };

// Calls body(step, codes) for each 64 of `columns` columns, with codes(row) those of a row that begins at
// block `row`. Beside the last of an odd number of blocks of 32 stand any codes, since activations are zero
// there.
template <typename Format, typename Body>
HY3_INLINE void for_each_64(int columns, Body body) {
    using Block = typename Format::Block;
    if constexpr (Format::elements == 32) {
        for (int step = 0; 64 * step < columns; step++) {
            const int second = 64 * step + 32 < columns ? 2 * step + 1 : 2 * step;
            body(step, [=](const Block* row) { return Format::codes(row[2 * step], row[second]); });
        }
    } else {
        for (int b = 0; 256 * b < columns; b++) {
            body(4 * b, [=](const Block* row) { return Format::template codes<0>(row[b]); });
            body(4 * b + 1, [=](const Block* row) { return Format::template codes<1>(row[b]); });
            body(4 * b + 2, [=](const Block* row) { return Format::template codes<2>(row[b]); });
            body(4 * b + 3, [=](const Block* row) { return Format::template codes<3>(row[b]); });
        }
    }
}

// The panel that is read next. Asking for a whole panel ahead hides the memory's latency, and asking in the
// order of addresses makes the most of its pages, where the rows of a panel are read a few columns of each in
// turn. Scales ask for a quarter and codes for the rest, so that the memory has something to do all the time.
class Ahead {
  public:
    // `next` may be null: then what is there already is asked for, which costs little.
    Ahead(const uint8_t* next, const uint8_t* panel) : next_(next != nullptr ? next : panel) {}

    // For the next `quarters` of bytes / 4.
    template <int64_t bytes, int quarters>
    [[gnu::always_inline]] void ask() {
        constexpr int64_t part = (bytes * quarters + 3) / 4;
        for (int64_t line = 0; line < part; line += 64) __builtin_prefetch(next_ + line, 0, 2);
        next_ += part;
    }

  private:
    const uint8_t* next_;
};

// Scales and biases of columns [column, column + columns).
template <typename Format>
static void unpack_scales(const uint8_t* const* rows, int64_t column, int columns, Ahead& ahead,
                          Panel& panel) {
    using Block = typename Format::Block;
    constexpr int lanes = Format::elements / Format::group * kPanel;
    const int64_t blocks = columns / Format::elements, first = column / Format::elements;
    for (int64_t b = 0; b < blocks; b++) {
        ahead.ask<kPanel * sizeof(Block), 1>();
        Format::scales({rows, (first + b) * static_cast<int64_t>(sizeof(Block))}, panel.scale + b * lanes,
                       panel.bias + b * lanes);
    }
}

// The codes of the same columns.
template <typename Format>
static void unpack_codes(const uint8_t* const* rows, int64_t column, int columns, Ahead& ahead,
                         Panel& panel) {
    using Block = typename Format::Block;
    for (int64_t r = 0; r < kPanel; r++) {
        const auto* from = reinterpret_cast<const Block*>(rows[r]) + column / Format::elements;
        uint8_t* u = panel.rows + r * Panel::stride;
        for (int c = 0; c < columns; c += 256) ahead.ask<sizeof(Block) * 256 / Format::elements, 3>();
        if constexpr (by_64<Format>)
            for_each_64<Format>(columns,
                                [&](int step, auto codes) { store_bytes(u + 64 * step, codes(from)); });
        else
            for (int b = 0; 256 * b < columns; b++) Format::codes(from[b], u + 256 * b);
    }
}

template <typename Format>
static void unpack_panel(const uint8_t* const* rows, int64_t column, int columns, Ahead& ahead,
                         Panel& panel) {
    unpack_codes<Format>(rows, column, columns, ahead, panel);
    unpack_scales<Format>(rows, column, columns, ahead, panel);
}
