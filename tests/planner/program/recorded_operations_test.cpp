#include "planner/program/recorded_operations.hpp"

#include <gtest/gtest.h>

namespace stowage::program {
namespace {

using recording::Event;
using recording::EventKind;
using std::chrono::microseconds;
using types::Nanoseconds;

/// Empty kernels 1.5 us apart, 4 us a launch.
types::Node node() {
    types::Node node;
    node.device.kernel_overhead = Nanoseconds{1500};
    node.host.kernel_launch = microseconds(4);
    return node;
}

Event kernel(std::uint32_t operation, Nanoseconds start, Nanoseconds end, std::uint32_t site = 0) {
    Event event;
    event.site = site;
    event.operation = operation;
    event.layer = 0;
    event.microbatch = 0;
    event.stream = 7;
    event.start = start;
    event.duration = end - start;
    return event;
}

recording::Recording of(std::vector<Event> events) {
    recording::Recording recording;
    recording.sites = {{"qkv_linear", "forward", "qkv"}, {"core_attn", "forward", "attention"}};
    recording.steps.emplace_back();
    recording.steps.back().stage = "steady";
    recording.steps.back().events = std::move(events);
    return recording;
}

TEST(RecordedOperations, AreStartToStartWhereTheNextOneWasWaiting) {
    // The header's example: gaps of 1 and 16 us. Twice 1.5 us is the longest that is the device's own; the lower
    // quartile of two gaps is 1 us, below the 1.5.
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(10)), kernel(1, microseconds(11), microseconds(31)),
            kernel(2, microseconds(47), microseconds(50))}),
        node());
    ASSERT_EQ(recorded.operations.size(), 3U);
    EXPECT_EQ(recorded.operations[0].span, microseconds(10));
    EXPECT_EQ(recorded.operations[0].gap, Nanoseconds{1000});
    EXPECT_EQ(recorded.operations[1].span, microseconds(20));
    EXPECT_EQ(recorded.operations[1].gap, std::nullopt);
    EXPECT_EQ(recorded.operations[2].gap, std::nullopt);
    EXPECT_EQ(recorded.gap, Nanoseconds{1000});
}

TEST(RecordedOperations, CountTheOccurrencesOfASite) {
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(10)), kernel(1, microseconds(10), microseconds(20), 1),
            kernel(2, microseconds(20), microseconds(30))}),
        node());
    ASSERT_EQ(recorded.operations.size(), 3U);
    EXPECT_EQ(recorded.operations[0].occurrence, 0U);
    EXPECT_EQ(recorded.operations[1].occurrence, 0U);
    EXPECT_EQ(recorded.operations[2].occurrence, 1U);
}

TEST(RecordedOperations, OfSeveralKernelsSpanTheFirstStartToTheLastEnd) {
    // 0 to 4 and 5 to 9 us are one call; the next one begins 2 us behind it.
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(4)), kernel(0, microseconds(5), microseconds(9)),
            kernel(1, microseconds(11), microseconds(12), 1)}),
        node());
    ASSERT_EQ(recorded.operations.size(), 2U);
    EXPECT_EQ(recorded.operations[0].span, microseconds(9));
    EXPECT_EQ(recorded.operations[0].gap, Nanoseconds{2000});
}

TEST(RecordedOperations, ALongGapThatAllHaveIsTheHosts) {
    // The lower quartile, 6 us, is longer than a launch: the device waited for the host everywhere, and empty kernels'
    // 1.5 us are what is left to say about the gap.
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(1)), kernel(1, microseconds(7), microseconds(8)),
            kernel(2, microseconds(14), microseconds(15))}),
        node());
    for (const RecordedOperation& operation : recorded.operations) EXPECT_EQ(operation.gap, std::nullopt);
    EXPECT_EQ(recorded.gap, Nanoseconds{1500});
}

TEST(RecordedOperations, AGapThatMostHaveIsTheDevicesUpToTwiceItsLength) {
    // 2 us is shorter than a launch of 4: gaps to 4 us are the device's.
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(1)), kernel(1, microseconds(3), microseconds(4)),
            kernel(2, microseconds(6), microseconds(7)), kernel(3, microseconds(11), microseconds(12))}),
        node());
    EXPECT_EQ(recorded.operations[2].gap, Nanoseconds{4000});
}

TEST(RecordedOperations, TheStreamOfMostKernelsIsTheMainOne) {
    std::vector<Event> events{kernel(0, microseconds(0), microseconds(10)),
                              kernel(1, microseconds(10), microseconds(20))};
    Event waiting = kernel(2, microseconds(0), microseconds(500), 1);
    waiting.stream = 9;
    events.insert(events.begin(), waiting);
    const RecordedOperations recorded = recorded_operations(of(events), node());
    ASSERT_EQ(recorded.operations.size(), 2U);
    EXPECT_EQ(recorded.operations[0].span, microseconds(10));
}

TEST(RecordedOperations, BesideACopyAreMarked) {
    Event copy = kernel(1, microseconds(12), microseconds(14));
    copy.kind = EventKind::device_to_host;
    copy.stream = 8;
    const RecordedOperations recorded = recorded_operations(
        of({kernel(0, microseconds(0), microseconds(10)), copy, kernel(2, microseconds(10), microseconds(20)),
            kernel(3, microseconds(20), microseconds(30))}),
        node());
    ASSERT_EQ(recorded.operations.size(), 3U);
    EXPECT_FALSE(recorded.operations[0].beside_copy);
    EXPECT_TRUE(recorded.operations[1].beside_copy);
    EXPECT_FALSE(recorded.operations[2].beside_copy);
}

TEST(RecordedOperations, WhatRecordingAddsIsTakenOffTheGaps) {
    // 33 us with records, 31.5 without: 1.5 us over three operations are 0.5 each. Gaps of 1 and 0.2 us keep 0.5 and 0.
    recording::Recording recording =
        of({kernel(0, microseconds(0), microseconds(10)), kernel(1, microseconds(11), microseconds(21)),
            kernel(2, Nanoseconds{21'200}, microseconds(33))});
    recording.steps.front().time = microseconds(33);
    recording.step_times = {Nanoseconds{31'500}};
    const RecordedOperations recorded = recorded_operations(recording, node());
    EXPECT_EQ(recorded.stamping, Nanoseconds{500});
    EXPECT_EQ(recorded.operations[0].gap, Nanoseconds{500});
    EXPECT_EQ(recorded.operations[1].gap, Nanoseconds{0});
    EXPECT_NEAR(recorded.recording_cost.value(), 33 / 31.5 - 1, 1e-12);
}

TEST(RecordedOperations, ARecordedStepThatIsFasterChangesNothing) {
    recording::Recording recording =
        of({kernel(0, microseconds(0), microseconds(10)), kernel(1, microseconds(11), microseconds(21))});
    recording.steps.front().time = microseconds(21);
    recording.step_times = {microseconds(22)};
    const RecordedOperations recorded = recorded_operations(recording, node());
    EXPECT_EQ(recorded.stamping, Nanoseconds{0});
    EXPECT_EQ(recorded.operations[0].gap, Nanoseconds{1000});
}

TEST(RecordedOperations, OnlyWholeStepsWithoutGraphsCount) {
    recording::Recording recording = of({kernel(0, microseconds(0), microseconds(10))});
    const recording::Step whole = recording.steps.front();
    recording.steps.clear();
    for (const char* stage : {"record", "eager", "steady"}) {
        recording.steps.push_back(whole);
        recording.steps.back().stage = stage;
    }
    recording.steps.push_back(whole);
    recording.steps.back().graphs = true;
    recording.steps.push_back(whole);
    recording.steps.back().dropped = 1;
    EXPECT_EQ(recorded_operations(recording, node()).steps.size(), 2U);
    EXPECT_EQ(recorded_operations(recording, node()).operations.size(), 2U);
}

}  // namespace
}  // namespace stowage::program
