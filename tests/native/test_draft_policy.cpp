// When drafts are made, on machines whose costs are made up.
#include <string>

#include "core/draft_policy.h"
#include "main.h"

namespace {

using hy3::DraftPolicy;

// A machine and a text: seconds of a step by rows and of a draft, and how often a draft at any depth is
// right.
struct World {
    std::vector<double> step;  // [0]: one row
    double draft;
    double right;
    double p;  // that the MTP layer gives its drafts
};

struct Outcome {
    double tokens = 0.0, seconds = 0.0;
    std::vector<int> steps;  // by the number of drafts evaluated
    double rate() const { return tokens / seconds; }
};

// Right or wrong in a fixed pattern of the given frequency.
class Coin {
  public:
    bool throw_with(double chance) {
        sum_ += chance;
        if (sum_ < 1.0) return false;
        sum_ -= 1.0;
        return true;
    }

  private:
    double sum_ = 0.5;
};

Outcome run(DraftPolicy& policy, const World& world, int limit, int n_steps) {
    Outcome out;
    out.steps.resize(static_cast<size_t>(limit) + 1);
    std::vector<Coin> coins(static_cast<size_t>(limit));
    for (int i = 0; i < n_steps; i++) {
        double reach = 1.0;
        int evaluated = 0;
        for (int depth = 1; depth <= limit && policy.worth_drafting(depth, reach, limit); depth++) {
            out.seconds += world.draft;
            policy.drafted(depth, world.draft);
            reach *= policy.chance(depth, world.p);
            if (!policy.worth_verifying(depth, reach, limit)) break;
            evaluated = depth;
        }
        const double step = world.step[static_cast<size_t>(evaluated)];
        policy.verified(evaluated + 1, step);
        out.seconds += step;
        out.tokens += 1.0;
        out.steps[static_cast<size_t>(evaluated)]++;
        for (int depth = 1; depth <= evaluated; depth++) {
            const bool right = coins[static_cast<size_t>(depth) - 1].throw_with(world.right);
            policy.judged(depth, world.p, right);
            if (!right) break;
            out.tokens += 1.0;
        }
    }
    return out;
}

}  // namespace

TEST(drafts_that_are_right_and_cheap_are_made) {
    DraftPolicy policy;
    const World world{{1.0, 1.2, 1.4, 1.6, 1.8}, 0.05, 0.95, 0.95};
    const Outcome out = run(policy, world, 4, 400);
    CHECK(out.steps[4] > 340);
    // 4.5 tokens in 2 seconds, less what was spent on trying.
    CHECK(out.rate() > 2.0);
}

TEST(drafts_that_are_wrong_are_not_made) {
    DraftPolicy policy;
    const World world{{1.0, 1.2, 1.4, 1.6, 1.8}, 0.05, 0.05, 0.9};
    const Outcome out = run(policy, world, 4, 1000);
    CHECK(out.steps[0] > 930);
    CHECK(out.rate() > 0.97);  // trying costs less than 3%
}

TEST(drafts_that_cost_more_than_they_bring_are_not_made) {
    DraftPolicy policy;
    const World world{{1.0, 1.9, 2.8, 3.7}, 0.1, 0.8, 0.8};
    const Outcome out = run(policy, world, 3, 1000);
    CHECK(out.steps[0] > 930);
    CHECK(out.rate() > 0.97);
}

TEST(the_depth_is_the_one_that_pays) {
    DraftPolicy policy;
    const World world{{1.0, 1.3, 1.9, 2.9, 3.9}, 0.05, 0.8, 0.8};  // rates: 1, 1.33, 1.22, ...
    const Outcome out = run(policy, world, 4, 1000);
    CHECK(out.steps[1] > 900);
}

TEST(a_costly_second_row_does_not_hide_a_free_third) {
    DraftPolicy policy;
    const World world{{1.0, 2.0, 2.0, 2.0}, 0.01, 0.9, 0.9};  // rates: 1, 0.95, 1.34, 1.7
    const Outcome out = run(policy, world, 3, 400);
    CHECK(out.steps[3] > 300);
}

TEST(a_doubtful_draft_is_not_evaluated) {
    DraftPolicy policy;
    const World sure{{1.0, 1.5}, 0.02, 0.9, 0.9};
    run(policy, sure, 1, 100);
    CHECK(policy.worth_verifying(1, policy.chance(1, 0.9), 1));
    CHECK(!policy.worth_verifying(1, policy.chance(1, 0.1), 1));
}

TEST(what_was_learned_is_unlearned) {
    DraftPolicy policy;
    const World good{{1.0, 1.3, 1.6}, 0.05, 0.95, 0.9}, bad{{1.0, 1.3, 1.6}, 0.05, 0.05, 0.9};
    run(policy, good, 2, 300);
    CHECK(run(policy, bad, 2, 1000).steps[0] > 850);
    CHECK(run(policy, good, 2, 2000).steps[2] > 1000);
}

TEST(chances_follow_what_was_seen) {
    DraftPolicy policy;
    CHECK_EQ(policy.chance(1, 0.5), 0.5);
    for (int i = 0; i < 200; i++) policy.judged(1, 0.5, i % 4 == 0);
    CHECK(policy.chance(1, 0.5) > 0.2 && policy.chance(1, 0.5) < 0.3);
    CHECK_EQ(policy.chance(2, 0.5), 0.5);
    for (int i = 0; i < 200; i++) policy.judged(2, 0.5, true);
    CHECK_EQ(policy.chance(2, 0.9), 1.0);
}
