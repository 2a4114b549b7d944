// The routing that is given to the layers: as many rows for each expert as planned, no token twice at one expert.

#include "executor/engine/assignment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planner/layers/kernel_call.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::executor {
namespace {

using layers::Dimensions;
using layers::testing::moe_gpt;
using layers::testing::moe_slice;

Dimensions skewed(double skew) {
    types::Scenario scenario = moe_slice();
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = skew;
    return layers::dimensions_of(scenario);
}

/// Rows of each expert; every token's experts are distinct experts of the model.
std::vector<std::int64_t> counted(const Dimensions& dim, const std::vector<std::int32_t>& assignment) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(dim.experts));
    for (std::int64_t token = 0; token < dim.local_tokens; ++token) {
        const auto first = assignment.begin() + token * dim.topk;
        const std::set<std::int32_t> experts(first, first + dim.topk);
        EXPECT_EQ(static_cast<std::int64_t>(experts.size()), dim.topk) << "token " << token;
        EXPECT_GE(*experts.begin(), 0);
        EXPECT_LT(*experts.rbegin(), dim.experts);
        for (const std::int32_t expert : experts) ++counts[static_cast<std::size_t>(expert)];
    }
    return counts;
}

// Where whole rows do not come out even the products' boundaries are the assignment's.
TEST(Assignment, GivesExpertsTheRowsThatTheirProductsRead) {
    for (const std::int64_t experts : {24, 16, 136}) {
        types::Scenario scenario = moe_gpt();
        scenario.model.num_experts = experts;
        const Dimensions dim = layers::dimensions_of(scenario);
        const std::vector<std::int64_t> counts = counted(dim, forced_assignment(dim, 1));
        for (std::int64_t expert = 0; expert < experts; ++expert)
            EXPECT_EQ(counts[static_cast<std::size_t>(expert)],
                      layers::rows_before(expert + 1, 1920, experts) - layers::rows_before(expert, 1920, experts));
    }
}

// 640 x 3 rows over 4 ranks of 6 experts: 480 a rank, 80 an expert. Of 1.3 times that, 624, each gets 104; the other 18
// share 1296, 72 each.
TEST(Assignment, LoadsThisRanksExpertsUnderSkew) {
    const Dimensions dim = skewed(1.3);
    const std::vector<std::int64_t> counts = counted(dim, forced_assignment(dim, 1));
    for (std::size_t expert = 0; expert < 24; ++expert) EXPECT_EQ(counts[expert], expert < 6 ? 104 : 72) << expert;
}

// At most ceil(received / experts) rows of one expert, which is what the host compares with.
TEST(Assignment, StaysWithinThePlanOfItsSkew) {
    for (const double skew : {1.0, 1.01, 1.1, 1.37, 2.0, 3.9}) {
        const Dimensions dim = skewed(skew);
        const std::vector<std::int64_t> counts = rows_of_experts(dim);
        EXPECT_LE(*std::max_element(counts.begin(), counts.end()), (dim.received_tokens + 23) / 24) << skew;
    }
}

TEST(Assignment, IsBalancedWhereExpertsArePadded) {
    types::Scenario scenario = moe_slice();
    scenario.model.moe_expert_capacity_factor = 1.5;
    scenario.model.moe_pad_expert_input_to_capacity = true;
    const std::vector<std::int64_t> counts = rows_of_experts(layers::dimensions_of(scenario));
    EXPECT_EQ(counts, std::vector<std::int64_t>(24, 80));
}

TEST(Assignment, DependsOnTheSeedAlone) {
    const Dimensions dim = layers::dimensions_of(moe_gpt());
    EXPECT_EQ(forced_assignment(dim, 7), forced_assignment(dim, 7));
    EXPECT_NE(forced_assignment(dim, 7), forced_assignment(dim, 8));
}

}  // namespace
}  // namespace stowage::executor
