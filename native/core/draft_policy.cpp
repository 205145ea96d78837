#include "core/draft_policy.h"

#include <algorithm>
#include <vector>

namespace hy3 {
namespace {

// A draft counts for half of one made 34 later at the same depth: texts change their nature.
constexpr double fading = 0.98;
// What is believed before anything was seen, as if that many drafts had shown it. Hopeful, so that drafts are
// tried at all.
constexpr double prior_weight = 2.0, prior_chance = 0.8;

size_t at(int from_one) {
    return static_cast<size_t>(from_one - 1);
}

}  // namespace

void Cost::add(double seconds, int64_t now) {
    seconds_[static_cast<size_t>(next_)] = seconds;
    next_ = (next_ + 1) % size_;
    count_ = std::min(count_ + 1, size_);
    last_ = now;
}

double Cost::median() const {
    std::vector<double> seconds(seconds_.begin(), seconds_.begin() + count_);
    const auto middle = seconds.begin() + (count_ - 1) / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

bool DraftPolicy::worth_drafting(int depth, double before, int limit) const {
    if (depth > limit) return false;
    // First what the step costs without this draft: what further ones are compared with.
    if (verifying_[at(depth)].stale(steps_)) return false;
    return probe(depth) || surplus(depth, before * usual_chance(depth), draft_cost(depth), limit);
}

bool DraftPolicy::worth_verifying(int depth, double reach, int limit) const {
    return probe(depth) || surplus(depth, reach, 0.0, limit);
}

double DraftPolicy::chance(int depth, double p) const {
    const Record& r = records_[at(depth)];
    return std::min(1.0, p * (r.right + prior_weight) / (r.promised + prior_weight));
}

void DraftPolicy::drafted(int depth, double seconds) {
    drafting_[depth == 1 ? 0 : 1].add(seconds, steps_);
}

void DraftPolicy::verified(int rows, double seconds) {
    verifying_[at(rows)].add(seconds, ++steps_);
}

void DraftPolicy::judged(int depth, double p, bool right) {
    Record& r = records_[at(depth)];
    r.judged = r.judged * fading + 1.0;
    r.right = r.right * fading + (right ? 1.0 : 0.0);
    r.promised = r.promised * fading + p;
}

double DraftPolicy::usual_chance(int depth) const {
    const Record& r = records_[at(depth)];
    return (r.right + prior_weight * prior_chance) / (r.judged + prior_weight);
}

double DraftPolicy::draft_cost(int depth) const {
    const Cost& cost = drafting_[depth == 1 ? 0 : 1];
    return cost.count() > 0 ? cost.median() : 0.0;
}

// A number of rows not seen yet is hoped to cost no more than the largest one seen below it.
double DraftPolicy::step_cost(int rows) const {
    double most = 0.0;
    for (int r = 1; r <= rows; r++)
        if (verifying_[at(r)].count() > 0) most = std::max(most, verifying_[at(r)].median());
    return most;
}

// The best, in tokens a second, that drafting always to the same depth would give.
double DraftPolicy::best_rate(int limit) const {
    double best = 0.0, tokens = 1.0, reach = 1.0, drafts = 0.0;
    for (int depth = 0; depth <= limit; depth++) {
        if (depth > 0) {
            reach *= usual_chance(depth);
            tokens += reach;
            drafts += draft_cost(depth);
        }
        best = std::max(best, tokens / (step_cost(depth + 1) + drafts));
    }
    return best;
}

// Whether going on to `depth` or any depth beyond brings more than its time is worth. reach: the chance that
// the draft at `depth` and all before it are right; cost: of making that one.
bool DraftPolicy::surplus(int depth, double reach, double cost, int limit) const {
    const double rate = best_rate(limit);
    double tokens = 0.0;
    for (int end = depth; end <= limit; end++) {
        if (end > depth) {
            reach *= usual_chance(end);
            cost += draft_cost(end);
        }
        tokens += reach;
        if (tokens > rate * (cost + step_cost(end + 1) - step_cost(depth))) return true;
    }
    return false;
}

// Now and then a draft is made whether it seems to pay or not, since costs and texts change.
bool DraftPolicy::probe(int depth) const {
    return verifying_[at(depth + 1)].stale(steps_);
}

}  // namespace hy3
