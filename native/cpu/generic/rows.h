// Operations on one row: quantization of activations, norms, RoPE, SwiGLU, sums.

// Calls body(offset, lanes) for each 16 columns; the last may have fewer lanes.
template <typename Body>
HY3_INLINE void by_16(int64_t n, Body body) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) body(i, 16);
    if (i < n) body(i, static_cast<int>(n - i));
}
HY3_INLINE F load_some(const float* p, int lanes) {
    return lanes == 16 ? load(p) : load_first(p, lanes);
}
HY3_INLINE void store_some(float* p, F x, int lanes) {
    if (lanes == 16)
        store(p, x);
    else
        store_first(p, x, lanes);
}

// Lanes of a quarter as (x0 + x2) + (x1 + x3), then the quarters in pairs.
HY3_INLINE float sum_tree(F x) {
    const F quarters = sum_quarters(x, x, x, x);
    float lanes[16];
    store(lanes, quarters);
    return (lanes[0] + lanes[4]) + (lanes[8] + lanes[12]);
}

HY3_INLINE float float_of(int32_t bits) {
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// max|x| of n columns (a multiple of 16). It is found on the bits, so that a NaN or an infinity is not lost.
HY3_INLINE float largest_magnitude(const float* x, int n) {
    I bits = abs_bits(load(x));
    for (int i = 16; i < n; i += 16) bits = ilarger(bits, abs_bits(load(x + i)));
    return float_of(largest_lane(bits));
}

// Whether a group of this largest magnitude can be scaled. What is below 1e-30 counts as zero: its inverse
// would overflow. A NaN or an infinity makes the scale NaN, and with it all that comes of the row.
HY3_INLINE bool can_scale(float largest) {
    return largest >= 1e-30f && largest <= 3e38f;
}
HY3_INLINE float scale_of_unscalable(float largest) {
    return largest < 1e-30f ? 0.0f : __builtin_nanf("");
}

// One group of 32 columns. Returns the scale, max|x| / 127.
HY3_INLINE float quantize_group(const float* x, int8_t* q, int32_t* sums) {
    const F a = load(x), b = load(x + 16);
    const float largest = float_of(largest_lane(ilarger(abs_bits(a), abs_bits(b))));
    if (!can_scale(largest)) {
        for (int i = 0; i < kGroup; i++) q[i] = 0;
        sums[0] = sums[1] = 0;
        return scale_of_unscalable(largest);
    }
    const F inverse = set1(127.0f / largest);
    const I qa = round_to_int(mul(a, inverse)), qb = round_to_int(mul(b, inverse));
    store_int8(q, qa);
    store_int8(q + 16, qb);
    sums[0] = sum_lanes(qa);
    sums[1] = sum_lanes(qb);
    return largest / 127.0f;
}

static void quantize(const float* x, int64_t r, int64_t first, int64_t count, const QuantizedRows& out) {
    int8_t* q = out.q + r * out.stride + first * kGroup;
    const int64_t groups = out.stride / kGroup;
    for (int64_t g = first; g < first + count; g++, x += kGroup, q += kGroup) {
        float scale = 0.0f;
        int32_t sums[2] = {0, 0};
        if (g * kGroup < out.cols)
            scale = quantize_group(x, q, sums);
        else
            for (int i = 0; i < kGroup; i++) q[i] = 0;
        const int64_t at = r * groups + g;
        out.scale[at] = scale;
        out.sum32[at] = sums[0] + sums[1];
        out.fsum32[at] = scale * static_cast<float>(sums[0] + sums[1]);
        for (int i = 0; i < 2; i++) {
            out.sum16[2 * at + i] = sums[i];
            out.fsum16[2 * at + i] = scale * static_cast<float>(sums[i]);
        }
    }
}

static void rms_norm(int64_t n, float eps, const float* x, const float* weight, float* y) {
    F squares = set1(0.0f);
    by_16(n, [&](int64_t i, int lanes) {
        const F v = load_some(x + i, lanes);
        squares = fma(v, v, squares);
    });
    const F scale = set1(1.0f / __builtin_sqrtf(sum_tree(squares) / static_cast<float>(n) + eps));
    by_16(n, [&](int64_t i, int lanes) {
        store_some(y + i, mul(mul(load_some(x + i, lanes), scale), load_some(weight + i, lanes)), lanes);
    });
}

static void rotate(int half, const float* cos, const float* sin, float* head) {
    for (int d = 0; d < half; d++) {
        const float a = head[d], b = head[d + half];
        head[d] = a * cos[d] - b * sin[d];
        head[d + half] = b * cos[d] + a * sin[d];
    }
}

// e^x with a relative error below 2^-22; x is clamped to where the result is a normal number, and NaN stays
// NaN by the order of the operands. x = n ln 2 + r, and e^r is a polynomial (Cephes expf).
HY3_INLINE F exponential(F x) {
    x = smaller(set1(88.0f), larger(set1(-87.0f), x));
    const I n = round_to_int(mul(x, set1(1.44269504f)));
    const F whole = to_float(n);
    F r = fma(whole, set1(-0.693359375f), x);
    r = fma(whole, set1(2.12194440e-4f), r);
    F p = set1(1.9875691500e-4f);
    p = fma(p, r, set1(1.3981999507e-3f));
    p = fma(p, r, set1(8.3334519073e-3f));
    p = fma(p, r, set1(4.1665795894e-2f));
    p = fma(p, r, set1(1.6666665459e-1f));
    p = fma(p, r, set1(5.0000001201e-1f));
    p = add(fma(p, mul(r, r), r), set1(1.0f));
    return mul(p, power_of_two(n));
}

static void swiglu(int64_t n, const float* gate, const float* up, float* out) {
    by_16(n, [&](int64_t i, int lanes) {
        const F g = load_some(gate + i, lanes);
        const F sigmoid_denominator = add(set1(1.0f), exponential(sub(set1(0.0f), g)));
        store_some(out + i, mul(div(g, sigmoid_denominator), load_some(up + i, lanes)), lanes);
    });
}

static void add_row(int64_t n, const float* x, float* y) {
    for (int64_t i = 0; i < n; i++) y[i] = y[i] + x[i];
}

static void add_scaled_row(int64_t n, float weight, const float* x, float* y) {
    const F w = set1(weight);
    by_16(n, [&](int64_t i, int lanes) {
        store_some(y + i, fma(w, load_some(x + i, lanes), load_some(y + i, lanes)), lanes);
    });
}
