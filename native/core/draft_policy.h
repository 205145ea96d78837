// When a draft of the MTP layer pays: learned from what steps cost on this machine and how often drafts
// turned out right. It decides how fast the tokens come, never which.
//
// The rule is that of renewal rewards. A further draft costs its own time and what one more row adds to the
// step that verifies it, and brings a token with the chance that it and all before it are right. It is made
// if that is more than the best rate known, in tokens a second, would bring in the same time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hy3 {

// The median of the last few seconds measured: one slow step on a busy machine does not count.
class Cost {
  public:
    void add(double seconds, int64_t now);
    int count() const { return count_; }
    double median() const;                                                    // count() above 0
    bool stale(int64_t now) const { return count_ < 2 || now - last_ > 64; }  // steps

  private:
    static constexpr int size_ = 5;
    std::array<double, size_> seconds_{};
    int count_ = 0, next_ = 0;
    int64_t last_ = 0;
};

class DraftPolicy {
  public:
    static constexpr int max_depth = 8;

    // Whether to make the draft at `depth` (from 1, at most `limit`). before: the chance that all drafts
    // before it are right, 1 for the first.
    bool worth_drafting(int depth, double before, int limit) const;
    // Whether to have the draft at `depth`, made by now, verified. reach: the chance that it and all before
    // it are right.
    bool worth_verifying(int depth, double reach, int limit) const;
    // The chance that a draft to which the MTP layer gives the probability p is right, all before it being
    // so.
    double chance(int depth, double p) const;

    void drafted(int depth, double seconds);
    // A step of that many rows; 1 is one without drafts.
    void verified(int rows, double seconds);
    // A draft came to the test: all before it were right.
    void judged(int depth, double p, bool right);

  private:
    struct Record {  // sums with old entries fading
        double judged = 0.0, right = 0.0, promised = 0.0;
    };

    double usual_chance(int depth) const;
    double draft_cost(int depth) const;
    double step_cost(int rows) const;
    double best_rate(int limit) const;
    bool surplus(int depth, double reach, double cost, int limit) const;
    bool probe(int depth) const;

    std::array<Record, max_depth> records_{};      // by depth
    std::array<Cost, 2> drafting_{};               // the first draft, a further one
    std::array<Cost, max_depth + 1> verifying_{};  // by rows
    int64_t steps_ = 0;
};

}  // namespace hy3
