// Attention of one row: the query heads that share a key/value head, over the cache's pages.
//
// The order of additions depends on positions alone. Within a page: scores by lane over head_dim,
// exponentials against the page's own maximum, values added position by position. Pages are then combined in
// order. So neither the chunk that wrote the keys nor whoever else was in the step changes a bit.

// Bring the 16 sums of 16 vectors into one vector; the same tree as sum_tree().
HY3_INLINE F sum_trees(const F v[16]) {
    F quads[4];
    for (int i = 0; i < 4; i++) quads[i] = sum_quarters(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    F quarters[4];
    gather_quarters(quads[0], quads[1], quads[2], quads[3], quarters);
    return add(add(quarters[0], quarters[1]), add(quarters[2], quarters[3]));
}

template <typename Load>
struct PageAttention {
    using Value = typename Load::Value;

    // scores[64] = scale * q . keys of the page's first `count` positions; the rest is -infinity. Returns the
    // largest.
    static float score(int head_dim, int count, float scale, const float* q, const Value* keys,
                       float* scores) {
        const float infinity = __builtin_inff();
        F largest = set1(-infinity);
        for (int first = 0; first < kPageSize; first += 16) {
            F dots[16];
            const int valid = count - first < 16 ? count - first : 16;
            for (int p = 0; p < 16; p++) {
                dots[p] = set1(0.0f);
                if (p >= valid) continue;
                const Value* key = keys + static_cast<int64_t>(first + p) * head_dim;
                for (int d = 0; d < head_dim; d += 16)
                    dots[p] = fma(load(q + d), Load::vector(key + d), dots[p]);
            }
            float lanes[16];
            store(lanes, mul(sum_trees(dots), set1(scale)));
            for (int p = valid < 0 ? 0 : valid; p < 16; p++) lanes[p] = -infinity;
            store(scores + first, load(lanes));
            largest = larger(largest, load(lanes));
        }
        float lanes[16];
        store(lanes, largest);
        float result = lanes[0];
        for (const float lane : lanes) result = lane > result ? lane : result;
        return result;
    }

    // Scores become weights e^(score - largest), zero beyond count; returns their sum.
    static float weigh(int count, float largest, float* scores) {
        F total = set1(0.0f);
        for (int first = 0; first < kPageSize; first += 16) {
            float lanes[16];
            store(lanes, exponential(sub(load(scores + first), set1(largest))));
            for (int p = 0; p < 16; p++)
                if (first + p >= count) lanes[p] = 0.0f;
            store(scores + first, load(lanes));
            total = add(total, load(lanes));
        }
        return sum_tree(total);
    }

    // out[head_dim] = sum over positions of weight * value
    static void mix(int head_dim, int count, const float* weights, const Value* values, float* out) {
        for (int d = 0; d < head_dim; d += 64) {
            const int parts = head_dim - d < 64 ? (head_dim - d) / 16 : 4;
            F sum[4] = {set1(0.0f), set1(0.0f), set1(0.0f), set1(0.0f)};
            for (int p = 0; p < count; p++) {
                const F weight = set1(weights[p]);
                const Value* value = values + static_cast<int64_t>(p) * head_dim + d;
                for (int i = 0; i < parts; i++) sum[i] = fma(weight, Load::vector(value + 16 * i), sum[i]);
            }
            for (int i = 0; i < parts; i++) store(out + d + 16 * i, sum[i]);
        }
    }

    static float exponential_of(float x) {
        float lanes[16];
        store(lanes, exponential(set1(x)));
        return lanes[0];
    }

    static void run(const AttentionArgs& a) {
        const int head_dim = a.layout->head_dim;
        const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(head_dim));
        const size_t key_offset = a.layout->key_offset(a.slot, a.kv_head);
        const size_t value_offset = a.layout->value_offset(a.slot, a.kv_head);
        float* const state = a.scratch;               // (group, 2): largest and total so far
        float* const page_out = state + 2 * a.group;  // (head_dim)
        float* const scores = page_out + head_dim;    // (64)
        for (int64_t first = 0; first <= a.position; first += kPageSize) {
            const int64_t left = a.position + 1 - first;
            const int count = static_cast<int>(left < kPageSize ? left : kPageSize);
            const std::byte* page = a.pages[first / kPageSize];
            const auto* keys = reinterpret_cast<const Value*>(page + key_offset);
            const auto* values = reinterpret_cast<const Value*>(page + value_offset);
            for (int h = 0; h < a.group; h++) {
                float* out = a.out + static_cast<int64_t>(h) * head_dim;
                const float largest =
                    score(head_dim, count, scale, a.q + static_cast<int64_t>(h) * head_dim, keys, scores);
                const float total = weigh(count, largest, scores);
                if (first == 0) {
                    mix(head_dim, count, scores, values, out);
                    state[2 * h] = largest;
                    state[2 * h + 1] = total;
                } else {
                    mix(head_dim, count, scores, values, page_out);
                    combine(head_dim, largest, total, page_out, state + 2 * h, out);
                }
            }
        }
        for (int h = 0; h < a.group; h++) {
            const F total = set1(state[2 * h + 1]);
            float* out = a.out + static_cast<int64_t>(h) * head_dim;
            for (int d = 0; d < head_dim; d += 16) store(out + d, div(load(out + d), total));
        }
    }

    // Adds a page's weighted values to those of the pages before it, both rescaled to the larger maximum.
    static void combine(int head_dim, float largest, float total, const float* page_out, float* state,
                        float* out) {
        const float maximum = largest > state[0] ? largest : state[0];
        const float before = exponential_of(state[0] - maximum), now = exponential_of(largest - maximum);
        for (int d = 0; d < head_dim; d += 16)
            store(out + d, fma(load(page_out + d), set1(now), mul(load(out + d), set1(before))));
        state[0] = maximum;
        state[1] = state[1] * before + total * now;
    }
};

static void attention(const AttentionArgs& args) {
    if (args.layout->type == KvType::f32)
        PageAttention<LoadF32>::run(args);
    else
        PageAttention<LoadF16>::run(args);
}
