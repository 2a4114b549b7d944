#include "profiler/cupti/correlate.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;
using types::Nanoseconds;

Activity eager(OperationNumber operation, Nanoseconds start, Nanoseconds end) {
    Activity activity;
    activity.start = start;
    activity.end = end;
    activity.issued_under = operation;
    return activity;
}

Activity node(std::uint64_t number, OperationNumber launch, Nanoseconds start, Nanoseconds end) {
    Activity activity = eager(launch, start, end);
    activity.graph = 1;
    activity.graph_node = number;
    return activity;
}

TEST(Correlate, GivesAnActivityToTheOperationThatIssuedIt) {
    const std::vector<Activity> activities = {eager(7, 10ns, 14ns)};
    const CorrelatedTimes times = correlate(activities, {});
    ASSERT_EQ(times.operations.size(), 1U);
    EXPECT_EQ(
        times.operations[0],
        (OperationTimes{
            .operation = 7, .launch = kNoOperation, .first_start = 10ns, .last_end = 14ns, .busy = 4ns, .kernels = 1}));
    EXPECT_TRUE(times.launches.empty());
    EXPECT_EQ(times.unmatched, 0U);
}

// [10, 14) and [20, 27), told in the other order: from 10 to 27, busy 4 + 7.
TEST(Correlate, MergesTheKernelsOfOneOperation) {
    const std::vector<Activity> activities = {eager(7, 20ns, 27ns), eager(7, 10ns, 14ns)};
    const CorrelatedTimes times = correlate(activities, {});
    ASSERT_EQ(times.operations.size(), 1U);
    EXPECT_EQ(times.operations[0].first_start, 10ns);
    EXPECT_EQ(times.operations[0].last_end, 27ns);
    EXPECT_EQ(times.operations[0].busy, 11ns);
    EXPECT_EQ(times.operations[0].kernels, 2U);
}

// [0, 10) and [5, 12) on two streams: a span of 12, but 10 + 7 busy.
TEST(Correlate, SumsWhatOverlaps) {
    const std::vector<Activity> activities = {eager(7, 0ns, 10ns), eager(7, 5ns, 12ns)};
    const OperationTimes times = correlate(activities, {}).operations.at(0);
    EXPECT_EQ(times.last_end - times.first_start, 12ns);
    EXPECT_EQ(times.busy, 17ns);
}

TEST(Correlate, TellsKernelsCopiesAndMemsetsApart) {
    std::vector<Activity> activities = {eager(7, 0ns, 1ns), eager(7, 1ns, 2ns), eager(7, 2ns, 3ns)};
    activities[1].kind = ActivityKind::copy;
    activities[1].bytes = 1_MiB;
    activities[2].kind = ActivityKind::memset;
    activities[2].bytes = 1_KiB;
    const OperationTimes times = correlate(activities, {}).operations.at(0);
    EXPECT_EQ(times.kernels, 1U);
    EXPECT_EQ(times.copies, 1U);
    EXPECT_EQ(times.memsets, 1U);
    EXPECT_EQ(times.bytes, 1_MiB + 1_KiB);
}

// The example of the header: nodes 11 and 12 of operation 3, launched under 7, and a node that nobody knows.
TEST(Correlate, GivesANodeToTheOperationThatItWasCapturedUnder) {
    const std::vector<Activity> activities = {node(11, 7, 0ns, 4ns), node(12, 7, 5ns, 9ns), node(99, 7, 10ns, 11ns)};
    const CorrelatedTimes times = correlate(activities, {{11, 3}, {12, 3}});
    ASSERT_EQ(times.operations.size(), 1U);
    EXPECT_EQ(
        times.operations[0],
        (OperationTimes{.operation = 3, .launch = 7, .first_start = 0ns, .last_end = 9ns, .busy = 8ns, .kernels = 2}));
    EXPECT_EQ(times.unmatched, 1U);
    ASSERT_EQ(times.launches.size(), 1U);
    EXPECT_EQ(
        times.launches[0],
        (OperationTimes{
            .operation = 7, .launch = kNoOperation, .first_start = 0ns, .last_end = 11ns, .busy = 9ns, .kernels = 3}));
}

TEST(Correlate, KeepsReplaysUnderDifferentOperationsApart) {
    const std::vector<Activity> activities = {node(11, 8, 20ns, 25ns), node(11, 7, 0ns, 4ns)};
    const CorrelatedTimes times = correlate(activities, {{11, 3}});
    ASSERT_EQ(times.operations.size(), 2U);  // by start: first the launch under 7
    EXPECT_EQ(times.operations[0].launch, 7U);
    EXPECT_EQ(times.operations[0].busy, 4ns);
    EXPECT_EQ(times.operations[1].launch, 8U);
    EXPECT_EQ(times.operations[1].busy, 5ns);
    EXPECT_EQ(times.operations[1].operation, 3U);
    EXPECT_EQ(times.launches.size(), 2U);
}

TEST(Correlate, CountsWhatWasIssuedUnderNothing) {
    const std::vector<Activity> activities = {eager(kNoOperation, 0ns, 1ns), eager(kNoOperation, 1ns, 2ns)};
    const CorrelatedTimes times = correlate(activities, {});
    EXPECT_TRUE(times.operations.empty());
    EXPECT_EQ(times.unmatched, 2U);
}

// A launch that nobody announced: the operation is known by its nodes, which launch it was is not.
TEST(Correlate, KnowsANodeThoughItsLaunchIsUnknown) {
    const std::vector<Activity> activities = {node(11, kNoOperation, 0ns, 4ns)};
    const CorrelatedTimes times = correlate(activities, {{11, 3}});
    ASSERT_EQ(times.operations.size(), 1U);
    EXPECT_EQ(times.operations[0].operation, 3U);
    EXPECT_EQ(times.operations[0].launch, kNoOperation);
    EXPECT_TRUE(times.launches.empty());
    EXPECT_EQ(times.unmatched, 0U);
}

TEST(Correlate, OrdersOperationsByTheirStarts) {
    const std::vector<Activity> activities = {eager(1, 30ns, 31ns), eager(2, 10ns, 11ns), eager(3, 20ns, 21ns)};
    std::vector<OperationNumber> order;
    for (const OperationTimes& times : correlate(activities, {}).operations) order.push_back(times.operation);
    EXPECT_EQ(order, (std::vector<OperationNumber>{2, 3, 1}));
}

}  // namespace
}  // namespace stowage::profiler
