#include "core/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace hy3 {
namespace {

struct Counter {
    uint32_t word[4];
};

// One of Philox's ten rounds: two 32x32 -> 64 bit products, cross-wired, keyed.
Counter philox_round(const Counter& c, uint32_t key0, uint32_t key1) {
    const uint64_t a = static_cast<uint64_t>(c.word[0]) * 0xD2511F53u;
    const uint64_t b = static_cast<uint64_t>(c.word[2]) * 0xCD9E8D57u;
    return {{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(b),
             static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(a)}};
}

// In 16 lanes: a chain of 120,832 comparisons would take a tenth of a millisecond.
float largest_of(std::span<const float> logits) {
    float lanes[16];
    std::fill_n(lanes, 16, -std::numeric_limits<float>::infinity());
    const auto larger = [](float a, float b) { return a > b ? a : b; };
    size_t i = 0;
    for (; i + 16 <= logits.size(); i += 16)
        for (size_t lane = 0; lane < 16; lane++) lanes[lane] = larger(logits[i + lane], lanes[lane]);
    for (; i < logits.size(); i++) lanes[0] = larger(logits[i], lanes[0]);
    return *std::max_element(lanes, lanes + 16);
}

// The largest logit; equal ones: the lowest id.
int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::find(logits.begin(), logits.end(), largest_of(logits)) - logits.begin());
}

void check_finite(std::span<const float> logits, uint64_t position) {
    // All ones in the exponent: an infinity or a NaN. On the bits, since this is a vector operation on any
    // machine.
    uint32_t bad = 0;
    for (const float x : logits) bad |= (std::bit_cast<uint32_t>(x) & 0x7fffffffu) >= 0x7f800000u ? 1 : 0;
    if (bad != 0)
        fail(Status::format, "The logits at position ", position,
             " are not finite numbers. The model's weights are damaged; download or convert them again.");
}

}  // namespace

void check_sampling(const Sampling& s) {
    const auto reject = [](const char* name, auto value, const char* wanted) {
        fail(Status::invalid_argument, name, " is ", value, ". Give ", wanted, ".");
    };
    if (!(s.temperature >= 0.0f && s.temperature <= 100.0f))
        reject("temperature", s.temperature, "a number from 0 (greedy) to 100");
    if (s.top_k < 0) reject("top_k", s.top_k, "0 (off) or more");
    if (!(s.top_p > 0.0f && s.top_p <= 1.0f)) reject("top_p", s.top_p, "a number above 0, up to 1 (off)");
    if (!(s.min_p >= 0.0f && s.min_p <= 1.0f)) reject("min_p", s.min_p, "a number from 0 (off) to 1");
    if (!(s.repeat_penalty > 0.0f && s.repeat_penalty <= 100.0f))
        reject("repeat_penalty", s.repeat_penalty, "a number above 0, up to 100; 1 is off");
}

double uniform(uint64_t seed, uint32_t choice, uint64_t position) {
    Counter counter{{static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, 0}};
    auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++) {
        counter = philox_round(counter, key0, key1);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    const uint64_t bits = (static_cast<uint64_t>(counter.word[0]) << 32 | counter.word[1]) >> 11;
    return static_cast<double>(bits) * 0x1p-53;
}

Sampler::Sampler(const Sampling& sampling) : sampling_(sampling) {
    check_sampling(sampling);
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> recent, uint64_t position) {
    check_finite(logits, position);
    if (sampling_.repeat_penalty != 1.0f) logits = penalise(logits, recent);
    if (sampling_.temperature == 0.0f) return argmax(logits);

    collect(logits);
    keep_top_p();
    keep_min_p();
    return draw(position);
}

std::span<const float> Sampler::penalise(std::span<const float> logits, std::span<const int32_t> recent) {
    logits_.assign(logits.begin(), logits.end());
    const auto window = recent.last(std::min(recent.size(), penalty_window));
    std::vector<int32_t> distinct(window.begin(), window.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const int32_t id : distinct) {
        float& logit = logits_[static_cast<size_t>(id)];
        logit = logit > 0.0f ? logit / sampling_.repeat_penalty : logit * sampling_.repeat_penalty;
    }
    return logits_;
}

// The order of the filters: larger logits first, among equals the lower id.
static constexpr auto ahead = [](const auto& a, const auto& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

// The top k, and their weights. Exponentials are what sampling takes its time for: candidates that min-p is
// sure to drop are left out before.
void Sampler::collect(std::span<const float> logits) {
    const auto k = static_cast<size_t>(sampling_.top_k);
    candidates_.clear();
    candidates_.reserve(k == 0 ? logits.size() : std::min(k, logits.size()));
    for (size_t i = 0; i < logits.size(); i++) {
        const Candidate candidate{logits[i], static_cast<int32_t>(i), 0.0};
        if (k == 0 || candidates_.size() < k) {
            candidates_.push_back(candidate);
            if (candidates_.size() == k) std::make_heap(candidates_.begin(), candidates_.end(), ahead);
        } else if (candidate.logit > candidates_.front().logit) {  // the front is the last of the k
            std::pop_heap(candidates_.begin(), candidates_.end(), ahead);
            candidates_.back() = candidate;
            std::push_heap(candidates_.begin(), candidates_.end(), ahead);
        }
    }
    const auto largest = static_cast<double>(largest_of(logits));
    const auto exponent = [&](const Candidate& c) {
        return (static_cast<double>(c.logit) - largest) / sampling_.temperature;
    };
    if (sampling_.top_p >= 1.0f && sampling_.min_p > 0.0f) {  // top-p would have counted them
        const double dropped = std::log(static_cast<double>(sampling_.min_p)) - 1e-6;
        std::erase_if(candidates_, [&](const Candidate& c) { return exponent(c) < dropped; });
    }
    for (Candidate& c : candidates_) c.weight = std::exp(exponent(c));
}

// The shortest head of the sorted candidates that holds top_p of the weight, found without sorting: halve the
// undecided range around its median and go on in the half where the limit falls.
void Sampler::keep_top_p() {
    if (sampling_.top_p >= 1.0f) return;
    double total = 0.0;
    for (const Candidate& c : candidates_) total += c.weight;
    double wanted = static_cast<double>(sampling_.top_p) * total;
    // All that weigh less than the mean of what may be left out cannot hold that much together.
    const double light = (total - wanted) / static_cast<double>(candidates_.size());
    auto begin = candidates_.begin();
    auto end =
        std::partition(begin, candidates_.end(), [&](const Candidate& c) { return c.weight >= light; });
    while (end - begin > 1) {
        const auto middle = begin + (end - begin) / 2;
        std::nth_element(begin, middle, end, ahead);
        double head = 0.0;
        for (auto it = begin; it != middle; ++it) head += it->weight;
        if (head >= wanted) {
            end = middle;
        } else {
            wanted -= head;
            begin = middle;
        }
    }
    candidates_.erase(end, candidates_.end());
}

void Sampler::keep_min_p() {
    if (sampling_.min_p == 0.0f) return;
    // The largest weight is 1 by construction, and top-k and top-p keep its candidate.
    std::erase_if(candidates_,
                  [&](const Candidate& c) { return c.weight < static_cast<double>(sampling_.min_p); });
}

int32_t Sampler::draw(uint64_t position) {
    // By ascending id, so that the draw does not depend on how the filters left the order.
    const auto by_id = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };
    if (!std::is_sorted(candidates_.begin(), candidates_.end(), by_id))
        std::sort(candidates_.begin(), candidates_.end(), by_id);
    double total = 0.0;
    for (const Candidate& c : candidates_) total += c.weight;
    double left = uniform(sampling_.seed, sampling_.choice, position) * total;
    for (const Candidate& c : candidates_) {
        left -= c.weight;
        if (left < 0.0) return c.id;
    }
    // Rounding left a crumb: the last token that can be drawn at all.
    return std::find_if(candidates_.rbegin(), candidates_.rend(),
                        [](const Candidate& c) { return c.weight > 0; })
        ->id;
}

}  // namespace hy3
