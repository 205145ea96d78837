// The two products of attention, scores = q . keys and sums = weights . values, over a page or span, for many
// queries at once. A block of queries and of vectors stays in registers; how the work is cut into blocks
// changes no bit, since each result is one chain of operations along the columns or the positions.

template <int n>
struct Size {
    static constexpr int value = n;
};

// Calls body(Size, first) for pieces of `most` of first..n-1, then of half of that, down to 1.
template <int most, typename Body>
HY3_INLINE void by_pieces(int first, int n, Body body) {
    for (; first + most <= n; first += most) body(Size<most>{}, first);
    if constexpr (most > 1) by_pieces<most / 2>(first, n, body);
}
template <int rows, int vectors, typename Body>
HY3_INLINE void by_blocks(int n_rows, int n_vectors, Body body) {
    by_pieces<vectors>(0, n_vectors, [&](auto width, int vector) {
        by_pieces<rows>(0, n_rows, [&](auto height, int row) { body(height, width, row, vector); });
    });
}

// What is read soon, asked for while something of the same size is multiplied: the memory then works while
// the core does. It is asked for evenly and in the order of addresses, by the blocks of the first queries in
// turn; the others find in the caches what those have read.
class Upcoming {
  public:
    Upcoming() = default;

    // The part of a block of `rows` queries from `row` on, of n, that goes through `lines` lines from `first`
    // on.
    template <int rows, int64_t line_bytes>
    HY3_INLINE Upcoming part(const std::byte* from, int64_t first, int row, int n, int lines) {
        constexpr int most = 8;  // queries
        if (from == nullptr || row >= most) return {};
        const int turns = ((n < most ? n : most) + rows - 1) / rows, turn = row / rows;
        Upcoming out;
        out.from_ = from + first + (lines + turns - 1) / turns * turn * line_bytes;
        out.next_ = turn;
        out.every_ = turns;
        return out;
    }

    // To be called for each line.
    template <int64_t line_bytes>
    [[gnu::always_inline]] void at(int line) {
        if (line != next_) return;
        for (int64_t i = 0; i < line_bytes; i += 64) __builtin_prefetch(from_ + i, 0, 2);
        from_ += line_bytes;
        next_ += every_;
    }

  private:
    const std::byte* from_ = nullptr;
    int next_ = -1;
    int every_ = 1;
};

// --- float32 and float16

// c[r][v] += sum over k < depth of a[r][k] * b[k][v], in the order of k.
template <typename Load, int rows, int vectors>
static void float_block(int depth, const float* a, int64_t a_stride, const typename Load::Value* b,
                        int64_t b_stride, float* c, int64_t c_stride, Upcoming upcoming) {
    F sum[rows][vectors];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = load(c + r * c_stride + 16 * v);
    for (int k = 0; k < depth; k++) {
        upcoming.at<16 * vectors * sizeof(*b)>(k);
        F column[vectors];
        for (int v = 0; v < vectors; v++) column[v] = Load::vector(b + k * b_stride + 16 * v);
        for (int r = 0; r < rows; r++) {
            const F x = set1(a[r * a_stride + k]);
            for (int v = 0; v < vectors; v++) sum[r][v] = fma(x, column[v], sum[r][v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) store(c + r * c_stride + 16 * v, sum[r][v]);
}

template <typename Load>
static void float_sums(int n_rows, int n_vectors, int depth, const float* a, int64_t a_stride,
                       const typename Load::Value* b, int64_t b_stride, float* c, int64_t c_stride,
                       const std::byte* next) {
    by_blocks<kFloatRows, kFloatWeights>(
        n_rows, n_vectors, [&](auto height, auto width, int row, int vector) {
            constexpr int64_t line = 16 * sizeof(*b);
            const auto upcoming = Upcoming::part<kFloatRows, width.value * line>(next, vector * depth * line,
                                                                                 row, n_rows, depth);
            float_block<Load, height.value, width.value>(depth, a + row * a_stride, a_stride, b + 16 * vector,
                                                         b_stride, c + row * c_stride + 16 * vector, c_stride,
                                                         upcoming);
        });
}

// --- quantized: integer products, exact in any order, then floats group by group

struct CodesQ8 {
    // Key codes go up to 255. Where dot4() takes signed ones, split() takes 128 off, and sums start from what
    // that makes of them.
    static constexpr int code_bits = 8;
    static constexpr int taken_off = kKeyOffsetQ8 - kWideOffset;
    static constexpr int parts = 1;  // operands that a line of keys makes, of 4 columns each
    static constexpr float key_offset = kKeyOffsetQ8;  // what the codes have above the value
    static constexpr float value_offset = 0.0f;
    static constexpr bool grouped = false;  // one scale a row
    HY3_INLINE void split(const std::byte* line, I out[parts]) {
        out[0] = add_bytes(load_bytes(line), set_bytes(-taken_off));
    }
    // Values of 4 positions, of 16 columns a vector.
    template <int vectors>
    HY3_INLINE void values(const std::byte* elements, int vector, int quad, I out[vectors]) {
        for (int v = 0; v < vectors; v++) out[v] = load_bytes(elements + ((vector + v) * 16 + quad) * 64);
    }
    HY3_INLINE F scales(const std::byte* head_scales, int, int p) {
        return load(reinterpret_cast<const float*>(head_scales) + p);
    }
};

struct CodesQ4 {
    static constexpr int code_bits = 4;
    static constexpr int taken_off = 0;
    static constexpr int parts = 2;
    static constexpr float key_offset = kMiddleQ4;
    static constexpr float value_offset = kMiddleQ4;
    static constexpr bool grouped = true;
    HY3_INLINE void split(const std::byte* line, I out[parts]) {
        const I bytes = load_bytes(line);
        out[0] = low_nibbles(bytes);
        out[1] = high_nibbles(bytes);
    }
    template <int vectors>
    HY3_INLINE void values(const std::byte* elements, int vector, int quad, I out[vectors]) {
        static_assert(vectors == 2);
        split(elements + (vector / 2 * 16 + quad) * 64, out);
    }
    HY3_INLINE F scales(const std::byte* head_scales, int group, int p) {
        return load_f16(reinterpret_cast<const uint16_t*>(head_scales) + group * kPageSize + p);
    }
};

// Queries in int8, by groups of 32 columns: x is scale * code. `bias` undoes the offset of the keys' codes.
struct CodedQueries {
    int64_t stride;  // of codes: head_dim rounded up to whole groups
    int groups;
    int8_t* codes;  // (n, stride)
    int32_t* sum;   // (n, groups): of the codes
    float* scale;   // (n, groups)
    float* bias;    // (n, groups): -offset * scale * sum
};

static void code_query(int head_dim, float offset, const float* x, int i, const CodedQueries& out) {
    for (int g = 0; g < out.groups; g++) {
        float padded[kGroup] = {};
        const int columns = head_dim - g * kGroup < kGroup ? head_dim - g * kGroup : kGroup;
        for (int d = 0; d < columns; d++) padded[d] = x[g * kGroup + d];
        int32_t sums[2];
        const float scale = quantize_group(padded, out.codes + i * out.stride + g * kGroup, sums);
        const int at = i * out.groups + g, sum = sums[0] + sums[1];
        out.sum[at] = sum;
        out.scale[at] = scale;
        out.bias[at] = -offset * scale * static_cast<float>(sum);
    }
}

// What is asked for while a page of keys is multiplied: the next page's keys, or null, and the values of this
// page, which will be read piece by piece, the first of all pages and so on.
struct AfterKeys {
    const std::byte* keys;
    const std::byte* values;
};

// Scores of queries [row, row + rows), of n, against 16 * vectors positions of a page, from p on.
template <typename Codes, int rows, int vectors>
static void score_block(const KvLayout& layout, const std::byte* keys, int p, const CodedQueries& queries,
                        int row, int n, float* scores, const AfterKeys& after) {
    constexpr int line_columns = 4 * Codes::parts;
    const int n_lines = layout.head_dim / line_columns;
    const int64_t block = n_lines * int64_t{64};  // bytes of 16 positions
    const auto upcoming = [&](const std::byte* from) {
        return Upcoming::part<kCodeRows, 64 * vectors>(from, p / 16 * block, row, n, n_lines);
    };
    Upcoming keys_ahead = upcoming(after.keys), values_ahead = upcoming(after.values);
    const std::byte* lines = keys + p / 16 * block;
    const std::byte* scales = keys + layout.elements_bytes();
    const int8_t* codes = queries.codes + row * queries.stride;
    F sum[rows][vectors];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = set1(0.0f);
    for (int g = 0; g < queries.groups; g++) {
        I dots[rows][vectors];
        for (int r = 0; r < rows; r++) {
            const I start = iset1(Codes::taken_off * queries.sum[(row + r) * queries.groups + g]);
            for (int v = 0; v < vectors; v++) dots[r][v] = start;
        }
        const int end = layout.head_dim < (g + 1) * kGroup ? layout.head_dim : (g + 1) * kGroup;
        for (int d = g * kGroup; d < end; d += line_columns) {
            keys_ahead.at<64 * vectors>(d / line_columns);
            values_ahead.at<64 * vectors>(d / line_columns);
            I operands[vectors][Codes::parts];
            for (int v = 0; v < vectors; v++)
                Codes::split(lines + v * block + d / line_columns * 64, operands[v]);
            for (int part = 0; part < Codes::parts; part++)
                for (int r = 0; r < rows; r++) {
                    const I x = repeat4(codes + r * queries.stride + d + 4 * part);
                    for (int v = 0; v < vectors; v++)
                        dots[r][v] = dot4<Codes::code_bits>(dots[r][v], operands[v][part], x);
                }
        }
        for (int r = 0; r < rows; r++) {
            const int at = (row + r) * queries.groups + g;
            const F scale = set1(queries.scale[at]), bias = set1(queries.bias[at]);
            for (int v = 0; v < vectors; v++) {
                const F dot = fma(to_float(dots[r][v]), scale, bias);
                sum[r][v] = Codes::grouped ? fma(dot, Codes::scales(scales, g, p + 16 * v), sum[r][v])
                                           : add(sum[r][v], dot);
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            if (!Codes::grouped) sum[r][v] = mul(sum[r][v], Codes::scales(scales, 0, p + 16 * v));
            store(scores + static_cast<int64_t>(row + r) * kSpan + 16 * v, sum[r][v]);
        }
}

// Weights times the scales of their values, in 14 bits as 128 * high + low so that both halves are bytes that
// every instruction set multiplies exactly. Over a span the sums of products stay below 2^24.
struct CodedWeights {
    int8_t* high;        // (n, kSpan)
    int8_t* low;         // (n, kSpan)
    float* unit;         // (n): weight * scale is unit * code
    float* high_offset;  // (n): value_offset * sum of high
    float* low_offset;   // (n)
    float* products;     // (kSpan)
};

// The first n lanes; the rest become `fill`, whatever they were.
HY3_INLINE F keep_first(F x, int n, float fill) {
    float lanes[16];
    store(lanes, x);
    for (int i = n < 0 ? 0 : n; i < 16; i++) lanes[i] = fill;
    return load(lanes);
}

// `heads` are the values' bytes in each page of the span; positions from n on get weight 0.
template <typename Codes>
static void code_weights(const KvLayout& layout, const std::byte* const* heads, int group, int n, int padded,
                         const float* weights, int row, const CodedWeights& out) {
    I bits = iset1(0);
    for (int i = 0; i < padded; i += 16) {
        const std::byte* scales = heads[i / kPageSize] + layout.elements_bytes();
        F product = mul(load(weights + i), Codes::scales(scales, group, i % kPageSize));
        if (n - i < 16) product = keep_first(product, n - i, 0.0f);
        bits = ilarger(bits, abs_bits(product));
        store(out.products + i, product);
    }
    const float largest = float_of(largest_lane(bits));
    const bool usable = can_scale(largest);
    out.unit[row] = usable ? largest / 16383.0f : scale_of_unscalable(largest);
    const F inverse = set1(usable ? 16383.0f / largest : 0.0f);
    I high_sum = iset1(0), low_sum = iset1(0);
    for (int i = 0; i < padded; i += 16) {
        const F code = to_float(round_to_int(mul(load(out.products + i), inverse)));
        // floor(code / 128): the subtracted 127/256 makes rounding to nearest do it.
        const I high = round_to_int(fma(code, set1(1.0f / 128.0f), set1(-127.0f / 256.0f)));
        const I low = round_to_int(fma(to_float(high), set1(-128.0f), code));
        store_int8(out.high + static_cast<int64_t>(row) * kSpan + i, high);
        store_int8(out.low + static_cast<int64_t>(row) * kSpan + i, low);
        high_sum = iadd(high_sum, high);
        low_sum = iadd(low_sum, low);
    }
    out.high_offset[row] = Codes::value_offset * static_cast<float>(sum_lanes(high_sum));
    out.low_offset[row] = Codes::value_offset * static_cast<float>(sum_lanes(low_sum));
}

// out (rows, 16 * vectors) = weights times values of columns 16 * vector on, over the first n positions.
template <typename Codes, int rows, int vectors>
static void mix_block(const std::byte* const* heads, int n, const CodedWeights& weights, int row, int vector,
                      float* out, int64_t out_stride) {
    I high[rows][vectors], low[rows][vectors];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) high[r][v] = low[r][v] = iset1(0);
    const int8_t* high_codes = weights.high + static_cast<int64_t>(row) * kSpan;
    const int8_t* low_codes = weights.low + static_cast<int64_t>(row) * kSpan;
    for (int first = 0; first < n; first += kPageSize) {
        const std::byte* elements = heads[first / kPageSize];
        const int count = n - first < kPageSize ? n - first : kPageSize;
        for (int quad = 0; quad < (count + 3) / 4; quad++) {
            I values[vectors];
            Codes::template values<vectors>(elements, vector, quad, values);
            for (int r = 0; r < rows; r++) {
                const int64_t at = static_cast<int64_t>(r) * kSpan + first + 4 * quad;
                const I high_code = repeat4(high_codes + at), low_code = repeat4(low_codes + at);
                for (int v = 0; v < vectors; v++) {
                    high[r][v] = dot4<7>(high[r][v], high_code, values[v]);
                    low[r][v] = dot4<7>(low[r][v], low_code, values[v]);
                }
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            const F h = sub(to_float(high[r][v]), set1(weights.high_offset[row + r]));
            const F l = sub(to_float(low[r][v]), set1(weights.low_offset[row + r]));
            store(out + (row + r) * out_stride + 16 * (vector + v),
                  mul(fma(h, set1(128.0f), l), set1(weights.unit[row + r])));
        }
}
