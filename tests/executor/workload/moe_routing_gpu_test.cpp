#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <tuple>

#include "scenarios/types/error.hpp"
#include "tests/executor/workload/workload_fixture.hpp"

namespace stowage::executor {
namespace {

using layers::Call;
using layers::CallSizes;
using Doubles = std::vector<double>;
using Integers = std::vector<std::int32_t>;

/// Experts of every token, different ones and not in order: a stride that shares no factor with the experts.
Integers assignment_of(std::int64_t rows, std::int64_t topk, std::int64_t experts) {
    Integers assignment;
    for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t k = 0; k < topk; ++k) {
            assignment.push_back(static_cast<std::int32_t>((t * t + k * (experts - 1) + t / 3) % experts));
        }
    }
    return assignment;
}

/// Weights of the experts of one token, by the formulas of the contract.
Doubles weights_of(const Doubles& logits, const Integers& chosen, const CallSizes& sizes) {
    const auto score = [&](double logit) { return sizes.sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : std::exp(logit); };
    double sum = 0;
    if (sizes.softmax_first) {
        for (const double logit : logits) sum += score(logit);
    } else {
        for (const std::int32_t expert : chosen) sum += score(logits[static_cast<std::size_t>(expert)]);
    }
    const double scale = sizes.sigmoid || sizes.softmax_first ? sizes.value : 1.0;
    Doubles weights;
    for (const std::int32_t expert : chosen) {
        weights.push_back(scale * score(logits[static_cast<std::size_t>(expert)]) / sum);
    }
    return weights;
}

/// The experts of the best groups, all of them where there are no groups, best first.
Integers choice_of(const Doubles& logits, const CallSizes& sizes) {
    Doubles scores;
    for (const double logit : logits) scores.push_back(sizes.sigmoid ? 1.0 / (1.0 + std::exp(-logit)) : logit);
    if (sizes.softmax_first) {
        for (double& score : scores) score = std::exp(score);  // all divided by the same sum
    }
    const auto best_first = [](const Doubles& of) {
        Integers order(of.size());
        std::iota(order.begin(), order.end(), 0);
        std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) {
            return of[static_cast<std::size_t>(a)] > of[static_cast<std::size_t>(b)];
        });
        return order;
    };
    const auto groups = std::max<std::size_t>(static_cast<std::size_t>(sizes.router_groups), 1);
    const std::size_t width = scores.size() / groups;
    Doubles group_scores;
    for (std::size_t g = 0; g < groups; ++g) {
        const auto begin = scores.begin() + static_cast<std::ptrdiff_t>(g * width);
        Doubles inside(begin, begin + static_cast<std::ptrdiff_t>(width));
        std::ranges::sort(inside, std::greater<>());
        group_scores.push_back(inside[0] + (width > 1 ? inside[1] : 0.0));
    }
    Integers kept = best_first(group_scores);
    if (sizes.router_groups > 0) kept.resize(static_cast<std::size_t>(sizes.router_topk_groups));
    Integers choice;
    for (const std::int32_t expert : best_first(scores)) {
        const auto group = static_cast<std::int32_t>(static_cast<std::size_t>(expert) / width);
        if (std::ranges::find(kept, group) != kept.end()) choice.push_back(expert);
    }
    choice.resize(static_cast<std::size_t>(sizes.topk));
    return choice;
}

template <class Value>
std::vector<Value> row_of(const std::vector<Value>& matrix, std::size_t row, std::int64_t columns) {
    const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(row) * columns;
    return {begin, begin + columns};
}

std::vector<CallSizes> routers() {
    std::vector<CallSizes> all;
    for (const auto& [experts, topk] :
         {std::pair<std::int64_t, std::int64_t>{8, 2}, {64, 6}, {72, 1}, {256, 8}, {512, 16}}) {
        CallSizes sizes;
        sizes.rows = 37;
        sizes.experts = experts;
        sizes.topk = topk;
        sizes.value = 2.5;
        all.push_back(sizes);
        sizes.softmax_first = true;
        all.push_back(sizes);
        sizes.softmax_first = false;
        sizes.sigmoid = true;
        all.push_back(sizes);
        if (experts % 4 != 0 || experts / 4 * 2 < topk) continue;
        sizes.router_groups = 4;
        sizes.router_topk_groups = 2;
        all.push_back(sizes);
        sizes.sigmoid = false;
        all.push_back(sizes);
        sizes.softmax_first = true;
        all.push_back(sizes);
    }
    return all;
}

class Router : public WorkloadGpu {};

TEST_F(Router, WeighsTheAssignedExpertsAndSaysWhatTheScoresAloneWouldChoose) {
    for (const CallSizes& sizes : routers()) {
        SCOPED_TRACE(testing::Message() << sizes.experts << " experts, sigmoid " << sizes.sigmoid << ", softmax first "
                                        << sizes.softmax_first << ", groups " << sizes.router_groups);
        const Values logits = random_values(sizes.rows * sizes.experts, 1, 2.0F);
        const Integers assignment = assignment_of(sizes.rows, sizes.topk, sizes.experts);
        Doubles expected;
        Integers choices;
        for (std::size_t t = 0; t < static_cast<std::size_t>(sizes.rows); ++t) {
            const Values row = row_of(logits, t, sizes.experts);
            const Doubles wide(row.begin(), row.end());
            const Doubles weights = weights_of(wide, row_of(assignment, t, sizes.topk), sizes);
            expected.insert(expected.end(), weights.begin(), weights.end());
            const Integers choice = choice_of(wide, sizes);
            choices.insert(choices.end(), choice.begin(), choice.end());
        }
        const Buffer on_device = fp32_buffer(logits);
        const Buffer assigned = int_buffer(assignment);
        const Buffer weights = empty_fp32(sizes.rows * sizes.topk);
        const Buffer choice = empty_fp32(sizes.rows * sizes.topk);
        run(Call::router_forward, sizes, {&on_device, &assigned, &weights, &choice});
        expect_close(weights.read<float>(), expected, 1e-5, 1e-7);
        EXPECT_EQ(choice.read<std::int32_t>(), choices);
    }
}

/// By central differences of the weights: independent of the formulas in the kernel.
TEST_F(Router, GivesTheGradientOfItsLogits) {
    for (const CallSizes& sizes : routers()) {
        SCOPED_TRACE(testing::Message() << sizes.experts << " experts, sigmoid " << sizes.sigmoid << ", softmax first "
                                        << sizes.softmax_first);
        const Values logits = random_values(sizes.rows * sizes.experts, 1, 2.0F);
        const Values dweights = random_values(sizes.rows * sizes.topk, 2);
        const Integers assignment = assignment_of(sizes.rows, sizes.topk, sizes.experts);
        Doubles expected;
        for (std::size_t t = 0; t < static_cast<std::size_t>(sizes.rows); ++t) {
            const Values row = row_of(logits, t, sizes.experts);
            const Values gradient = row_of(dweights, t, sizes.topk);
            const Integers chosen = row_of(assignment, t, sizes.topk);
            Doubles at(row.begin(), row.end());
            const auto loss = [&] {
                const Doubles weights = weights_of(at, chosen, sizes);
                double sum = 0;
                for (std::size_t k = 0; k < weights.size(); ++k) sum += weights[k] * static_cast<double>(gradient[k]);
                return sum;
            };
            for (double& logit : at) {
                const double middle = logit;
                logit = middle + 1e-5;
                const double above = loss();
                logit = middle - 1e-5;
                expected.push_back((above - loss()) / 2e-5);
                logit = middle;
            }
        }
        const Buffer on_device = fp32_buffer(logits);
        const Buffer assigned = int_buffer(assignment);
        const Buffer upstream = fp32_buffer(dweights);
        const Buffer dlogits = empty_bf16(sizes.rows * sizes.experts);
        run(Call::router_backward, sizes, {&on_device, &assigned, &upstream, &dlogits});
        expect_close(dlogits.read_bf16(), expected, 1.0 / 256, 1e-6);
    }
}

TEST_F(Router, ChoosesTheLowerNumberOfTwoEqualScores) {
    CallSizes sizes;
    sizes.rows = 1;
    sizes.experts = 64;
    sizes.topk = 4;
    Values logits(64, 0.0F);
    logits[40] = 1.0F;
    const Buffer on_device = fp32_buffer(logits);
    const Buffer assigned = int_buffer({1, 2, 3, 4});
    const Buffer weights = empty_fp32(4);
    const Buffer choice = empty_fp32(4);
    run(Call::router_forward, sizes, {&on_device, &assigned, &weights, &choice});
    EXPECT_EQ(choice.read<std::int32_t>(), (Integers{40, 0, 1, 2}));
    EXPECT_EQ(weights.read<float>(), Values(4, 0.25F)) << "a softmax over four equal logits";
}

class RouteRows : public WorkloadGpu {};

TEST_F(RouteRows, SortsByExpertAndByTokenWithinOne) {
    for (const auto& [rows, topk, experts] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
                                              {5, 2, 7},
                                              {100, 3, 16},
                                              {4099, 8, 128},
                                              {3000, 16, 512},
                                              {32768, 8, 64}}) {
        SCOPED_TRACE(testing::Message() << rows << " tokens, " << topk << " of " << experts);
        CallSizes sizes;
        sizes.rows = rows;
        sizes.topk = topk;
        sizes.experts = experts;
        const Integers assignment = assignment_of(rows, topk, experts);
        Integers sources(assignment.size());
        std::iota(sources.begin(), sources.end(), 0);
        std::ranges::stable_sort(sources, {}, [&](std::int32_t c) { return assignment[static_cast<std::size_t>(c)]; });
        Integers places(assignment.size());
        Integers counts(static_cast<std::size_t>(experts));
        for (std::size_t place = 0; place < sources.size(); ++place) {
            places[static_cast<std::size_t>(sources[place])] = static_cast<std::int32_t>(place);
            ++counts[static_cast<std::size_t>(assignment[static_cast<std::size_t>(sources[place])])];
        }
        const Buffer assigned = int_buffer(assignment);
        const Buffer places_out = empty_fp32(rows * topk);
        const Buffer sources_out = empty_fp32(rows * topk);
        const Buffer counts_out = empty_fp32(experts);
        run(Call::route_rows, sizes, {&assigned, &places_out, &sources_out, &counts_out});
        EXPECT_EQ(places_out.read<std::int32_t>(), places);
        EXPECT_EQ(sources_out.read<std::int32_t>(), sources);
        EXPECT_EQ(counts_out.read<std::int32_t>(), counts);
    }
}

TEST_F(RouteRows, RefusesMoreChoicesOrExpertsThanItsKernelsTake) {
    CallSizes sizes;
    sizes.rows = 4;
    sizes.topk = 17;
    sizes.experts = 64;
    const CallShape choices{Call::route_rows, sizes};
    EXPECT_THROW(workload().prepare({&choices, 1}), types::UnsupportedError);
    sizes.topk = 2;
    sizes.experts = 513;
    const CallShape experts{Call::router_forward, sizes};
    EXPECT_THROW(workload().prepare({&experts, 1}), types::UnsupportedError);
}

}  // namespace
}  // namespace stowage::executor
