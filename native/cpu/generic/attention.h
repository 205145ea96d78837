// Attention of a tile of queries over one span of the cache.
//
// The order of additions depends on positions alone. Within a span: scores column by column, exponentials
// against the span's own maximum, values added position by position (quantized ones as exact integers). Spans
// are then combined in order. So neither the chunk that wrote the keys, nor the other rows of the tile, nor
// whoever else was in the step, nor how spans were spread over threads changes a bit.

// A tile and what it reads in one span.
struct SpanView {
    const AttentionTile& tile;
    const KvLayout layout;
    int64_t first;                      // position of the span's begin
    int full;                           // pages that every row attends to whole
    int pages;                          // pages that are attended to
    const std::byte* keys[kSpanPages];  // of the head, page by page
    const std::byte* values[kSpanPages];

    SpanView(const AttentionTile& t, int64_t span) : tile(t), layout(*t.layout), first(span * kSpan) {
        const int64_t before = t.position / kPageSize - span * kSpanPages;  // pages before the rows' own
        full = static_cast<int>(before < kSpanPages ? before : kSpanPages);
        pages = before < kSpanPages ? full + 1 : full;
        for (int i = 0; i < pages; i++) {
            const std::byte* page = t.pages[span * kSpanPages + i];
            keys[i] = page + layout.key_offset(t.slot, t.kv_head);
            values[i] = page + layout.value_offset(t.slot, t.kv_head);
        }
    }
    // Positions of the span that a row attends to.
    int count(int row) const {
        const int64_t left = tile.position + row + 1 - first;
        return static_cast<int>(left < kSpan ? left : kSpan);
    }
    int most() const { return count(tile.rows - 1); }
    // The keys, or values, of the page after one; null: none in this span.
    const std::byte* next_keys(int page) const { return page + 1 < pages ? keys[page + 1] : nullptr; }
    const std::byte* next_values(int page) const { return page + 1 < pages ? values[page + 1] : nullptr; }
    // Vectors of 16 positions in a page that some row attends to.
    int vectors(int page) const {
        const int left = most() - page * kPageSize;
        return left < kPageSize ? (left + 15) / 16 : kPageSize / 16;
    }
};

// The result of a span: float, or const float to read it.
template <typename T>
struct SpanResult {
    T* out;      // (n, head_dim): sums of weighted values
    T* largest;  // (n): scores
    T* total;    // (n): of the weights

    SpanResult(T* partial, const AttentionTile& tile)
        : out(partial),
          largest(out + static_cast<int64_t>(tile.queries()) * tile.layout->head_dim),
          total(largest + tile.queries()) {}
};

struct SpanWork {
    SpanResult<float> result;
    const float* queries;  // (n, head_dim), divided by the root of head_dim
    float* scores;         // (n, kSpan), then weights
};

// Scores become weights e^(score - largest), zero from n to `padded`.
static void weigh(int n, int padded, float* scores, float* largest, float* total) {
    const float infinity = __builtin_inff();
    if (n % 16 != 0) store(scores + n / 16 * 16, keep_first(load(scores + n / 16 * 16), n % 16, -infinity));
    F most = set1(-infinity);
    for (int i = 0; i < n; i += 16) most = larger(most, load(scores + i));
    float lanes[16];
    store(lanes, most);
    *largest = lanes[0];
    for (const float lane : lanes) *largest = lane > *largest ? lane : *largest;
    F sum = set1(0.0f);
    for (int i = 0; i < padded; i += 16) {
        F weight = exponential(sub(load(scores + i), set1(*largest)));
        if (n - i < 16) weight = keep_first(weight, n - i, 0.0f);
        store(scores + i, weight);
        sum = add(sum, weight);
    }
    *total = sum_tree(sum);
}

static void weigh_all(const SpanView& view, const SpanWork& work) {
    for (int i = 0; i < view.tile.queries(); i++)
        weigh(view.count(i / view.tile.group), view.pages * kPageSize,
              work.scores + static_cast<int64_t>(i) * kSpan, work.result.largest + i, work.result.total + i);
}

// Memory of the scratch, handed out piece by piece.
class Pieces {
  public:
    explicit Pieces(std::byte* memory) : next_(memory) {}
    template <typename T>
    T* take(int64_t count) {
        T* piece = reinterpret_cast<T*>(next_);
        next_ += count * static_cast<int64_t>(sizeof(T));
        return piece;
    }

  private:
    std::byte* next_;
};

template <typename Load>
struct FloatAttention {
    using Value = typename Load::Value;

    static void run(const SpanView& view, const SpanWork& work, Pieces) {
        score(view, work);
        weigh_all(view, work);
        mix(view, work);
    }

    static void score(const SpanView& view, const SpanWork& work) {
        const int n = view.tile.queries(), head_dim = view.layout.head_dim;
        for (int i = 0; i < n; i++)
            for (int p = 0; p < view.pages * kPageSize; p += 16)
                store(work.scores + static_cast<int64_t>(i) * kSpan + p, set1(0.0f));
        for (int page = 0; page < view.pages; page++) {
            const std::byte* next = view.next_keys(page);
            float_sums<Load>(n, view.vectors(page), head_dim, work.queries, head_dim,
                             reinterpret_cast<const Value*>(view.keys[page]), kPageSize,
                             work.scores + page * kPageSize, kSpan, next != nullptr ? next : view.values[0]);
        }
    }

    static void mix(const SpanView& view, const SpanWork& work) {
        const AttentionTile& t = view.tile;
        const int head_dim = view.layout.head_dim, vectors = head_dim / 16;
        const int64_t row_floats = static_cast<int64_t>(t.group) * head_dim;
        for (int64_t i = 0; i < t.rows * row_floats; i += 16) store(work.result.out + i, set1(0.0f));
        for (int page = 0; page < view.full; page++)
            float_sums<Load>(t.queries(), vectors, kPageSize, work.scores + page * kPageSize, kSpan,
                             reinterpret_cast<const Value*>(view.values[page]), head_dim, work.result.out,
                             head_dim, view.next_values(page));
        if (view.full == view.pages) return;
        // Never read beyond a row's own position: what is there may be no number.
        for (int row = 0; row < t.rows; row++)
            float_sums<Load>(
                t.group, vectors, view.count(row) - view.full * kPageSize,
                work.scores + static_cast<int64_t>(row) * t.group * kSpan + view.full * kPageSize, kSpan,
                reinterpret_cast<const Value*>(view.values[view.full]), head_dim,
                work.result.out + row * row_floats, head_dim, nullptr);
    }
};

template <typename Codes>
struct CodedAttention {
    static void run(const SpanView& view, const SpanWork& work, Pieces pieces) {
        const int64_t n = view.tile.queries();
        const int groups = (view.layout.head_dim + kGroup - 1) / kGroup;
        const CodedQueries queries{groups * int64_t{kGroup},
                                   groups,
                                   pieces.take<int8_t>(n * groups * kGroup),
                                   pieces.take<int32_t>(n * groups),
                                   pieces.take<float>(n * groups),
                                   pieces.take<float>(n * groups)};
        score(view, queries, work);
        weigh_all(view, work);
        const CodedWeights weights{pieces.take<int8_t>(n * kSpan), pieces.take<int8_t>(n * kSpan),
                                   pieces.take<float>(n),          pieces.take<float>(n),
                                   pieces.take<float>(n),          pieces.take<float>(kSpan)};
        mix(view, work, weights);
    }

    static void score(const SpanView& view, const CodedQueries& queries, const SpanWork& work) {
        const int n = view.tile.queries(), head_dim = view.layout.head_dim;
        for (int i = 0; i < n; i++)
            code_query(head_dim, Codes::key_offset, work.queries + static_cast<int64_t>(i) * head_dim, i,
                       queries);
        for (int page = 0; page < view.pages; page++)
            by_blocks<kCodeRows, 2>(n, view.vectors(page), [&](auto height, auto width, int row, int v) {
                score_block<Codes, height.value, width.value>(view.layout, view.keys[page], 16 * v, queries,
                                                              row, n, work.scores + page * kPageSize + 16 * v,
                                                              {view.next_keys(page), view.values[page]});
            });
    }

    static void mix(const SpanView& view, const SpanWork& work, const CodedWeights& weights) {
        const int head_dim = view.layout.head_dim, n = view.tile.queries();
        for (int column = 0; column < head_dim; column += kKvGroup) {
            if (Codes::grouped || column == 0)
                for (int i = 0; i < n; i++)
                    code_weights<Codes>(view.layout, view.values, column / kKvGroup,
                                        view.count(i / view.tile.group), view.pages * kPageSize,
                                        work.scores + static_cast<int64_t>(i) * kSpan, i, weights);
            const auto block = [&](auto height, auto width, int row) {
                mix_block<Codes, height.value, width.value>(view.values, view.most(), weights, row,
                                                            column / 16, work.result.out, head_dim);
            };
            if (head_dim - column >= kKvGroup)
                by_pieces<kCodeRows>(0, n, [&](auto height, int row) { block(height, Size<2>{}, row); });
            else if constexpr (!Codes::grouped)
                by_pieces<kCodeRows>(0, n, [&](auto height, int row) { block(height, Size<1>{}, row); });
        }
    }
};

// The queries of a tile one after the other, times the scale of scores.
static void gather_queries(const AttentionTile& tile, float* out) {
    const int head_dim = tile.layout->head_dim;
    const F scale = set1(1.0f / __builtin_sqrtf(static_cast<float>(head_dim)));
    for (int row = 0; row < tile.rows; row++)
        for (int64_t i = 0; i < static_cast<int64_t>(tile.group) * head_dim; i += 16, out += 16)
            store(out, mul(load(tile.q + row * tile.row_stride + i), scale));
}

static void attend_span(const AttentionTile& tile, int64_t span, float* partial, std::byte* scratch) {
    const SpanView view(tile, span);
    Pieces pieces(scratch);
    float* queries = pieces.take<float>(static_cast<int64_t>(tile.queries()) * tile.layout->head_dim);
    gather_queries(tile, queries);
    const SpanWork work{
        {partial, tile}, queries, pieces.take<float>(static_cast<int64_t>(tile.queries()) * kSpan)};
    switch (view.layout.type) {
        case KvType::f32:
            return FloatAttention<LoadF32>::run(view, work, pieces);
        case KvType::f16:
            return FloatAttention<LoadF16>::run(view, work, pieces);
        case KvType::q8:
            return CodedAttention<CodesQ8>::run(view, work, pieces);
        case KvType::q4:
            return CodedAttention<CodesQ4>::run(view, work, pieces);
    }
}

static float exponential_of(float x) {
    float lanes[16];
    store(lanes, exponential(set1(x)));
    return lanes[0];
}

// Both sides are rescaled to the larger maximum.
static void add_span(const AttentionTile& tile, const float* next, float* partial) {
    const int head_dim = tile.layout->head_dim;
    const SpanResult<const float> added(next, tile);
    const SpanResult<float> sum(partial, tile);
    for (int i = 0; i < tile.queries(); i++) {
        const float most = added.largest[i] > sum.largest[i] ? added.largest[i] : sum.largest[i];
        const float before = exponential_of(sum.largest[i] - most),
                    now = exponential_of(added.largest[i] - most);
        const float* from = added.out + static_cast<int64_t>(i) * head_dim;
        float* to = sum.out + static_cast<int64_t>(i) * head_dim;
        for (int d = 0; d < head_dim; d += 16)
            store(to + d, fma(load(from + d), set1(now), mul(load(to + d), set1(before))));
        sum.largest[i] = most;
        sum.total[i] = sum.total[i] * before + added.total[i] * now;
    }
}

static void finish_attention(const AttentionTile& tile, const float* partial) {
    const int64_t head_dim = tile.layout->head_dim;
    const SpanResult<const float> sum(partial, tile);
    for (int i = 0; i < tile.queries(); i++) {
        const F total = set1(sum.total[i]);
        const float* from = sum.out + i * head_dim;
        float* to = tile.out + i / tile.group * tile.row_stride + i % tile.group * head_dim;
        for (int64_t d = 0; d < head_dim; d += 16) store(to + d, div(load(from + d), total));
    }
}
