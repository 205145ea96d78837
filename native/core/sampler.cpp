#include "core/sampler.h"

#include <algorithm>
#include <cmath>

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

// The largest logit; equal ones: the lowest id.
int32_t argmax(std::span<const float> logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void check_finite(std::span<const float> logits, uint64_t position) {
    // Additions of finite numbers can overflow, but only to an infinity; x - x is 0 for finite x alone.
    float acc = 0.0f;
    for (const float x : logits) acc += x - x;
    if (acc != 0.0f)
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
    logits_.assign(logits.begin(), logits.end());
    penalise(recent);
    if (sampling_.temperature == 0.0f) return argmax(logits_);

    collect();
    keep_top_k();
    keep_top_p();
    keep_min_p();

    // By ascending id, so that the draw does not depend on how the filters left the order.
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
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

void Sampler::penalise(std::span<const int32_t> recent) {
    if (sampling_.repeat_penalty == 1.0f) return;
    const auto window = recent.last(std::min(recent.size(), penalty_window));
    std::vector<int32_t> distinct(window.begin(), window.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    for (const int32_t id : distinct) {
        float& logit = logits_[static_cast<size_t>(id)];
        logit = logit > 0.0f ? logit / sampling_.repeat_penalty : logit * sampling_.repeat_penalty;
    }
}

void Sampler::collect() {
    const float largest = *std::max_element(logits_.begin(), logits_.end());
    candidates_.clear();
    candidates_.reserve(logits_.size());
    for (size_t i = 0; i < logits_.size(); i++) {
        const double exponent = (static_cast<double>(logits_[i]) - largest) / sampling_.temperature;
        candidates_.push_back({logits_[i], static_cast<int32_t>(i), std::exp(exponent)});
    }
}

// The order of the filters: larger logits first, among equals the lower id.
static constexpr auto ahead = [](const auto& a, const auto& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

void Sampler::keep_top_k() {
    const auto k = static_cast<size_t>(sampling_.top_k);
    if (k == 0 || k >= candidates_.size()) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + sampling_.top_k, candidates_.end(), ahead);
    candidates_.resize(k);
}

// The shortest head of the sorted candidates that holds top_p of the weight, found without sorting: halve the
// undecided range around its median and go on in the half where the limit falls.
void Sampler::keep_top_p() {
    if (sampling_.top_p >= 1.0f) return;
    double total = 0.0;
    for (const Candidate& c : candidates_) total += c.weight;
    double wanted = static_cast<double>(sampling_.top_p) * total;
    auto begin = candidates_.begin(), end = candidates_.end();
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

}  // namespace hy3
