// What a core can do at most, for the shares that a benchmark reports: read memory, and multiply int8.

// Independent chains of products: enough to hide the latency of each, few enough to stay in registers.
constexpr int kProbeChains = kRowBlock >= 8 ? 16 : 4;

// The largest of n bytes' words, n a multiple of 512: no read can be left out.
static int32_t read_memory(const uint8_t* from, int64_t n) {
    I largest[8];
    for (I& part : largest) part = iset1(0);
    for (int64_t at = 0; at < n; at += 512)
        for (int i = 0; i < 8; i++) largest[i] = ilarger(largest[i], load_bytes(from + at + 64 * i));
    for (int i = 1; i < 8; i++) largest[0] = ilarger(largest[0], largest[i]);
    return largest_lane(largest[0]);
}

// Returns the multiplications and additions it did. Each chain has operands of its own, in memory and
// changing from round to round, or the compiler would compute a product once and only add it again.
static int64_t multiply_int8(int64_t rounds, int32_t* sum) {
    alignas(64) int8_t operands[4][kProbeChains * 64];
    uint32_t value = static_cast<uint32_t>(*sum);
    for (auto& phase : operands)
        for (int8_t& byte : phase) byte = static_cast<int8_t>(value += 7);
    const I u = iset1(static_cast<int32_t>(value & 0x7f7f7f7f));
    I chains[kProbeChains];
    for (I& chain : chains) chain = iset1(0);
    for (int64_t round = 0; round < rounds; round++) {
        const int8_t* s = operands[round & 3];
        for (int i = 0; i < kProbeChains; i++) chains[i] = dot4<7>(chains[i], u, load_bytes(s + 64 * i));
    }
    for (int i = 1; i < kProbeChains; i++) chains[0] = iadd(chains[0], chains[i]);
    *sum = sum_lanes(chains[0]);
    return rounds * kProbeChains * 64 * 2;
}
