#include "planner/program/stream_order.hpp"

#include <gtest/gtest.h>

namespace stowage::program {
namespace {

constexpr Operation kernel(Stream stream) { return {.kind = OperationKind::compute, .stream = stream}; }
constexpr Operation wait(Stream stream, Stream other) {
    return {.kind = OperationKind::stream_wait, .stream = stream, .other = other};
}
constexpr Operation record(Stream stream) { return {.kind = OperationKind::event_record, .stream = stream}; }
constexpr Operation await(Stream stream) { return {.kind = OperationKind::event_wait, .stream = stream}; }

TEST(StreamOrder, KnowsAStreamsOwnWorkAndNothingOfOthers) {
    StreamOrder order;
    order.issue(kernel(Stream::main));
    order.issue(kernel(Stream::main));
    EXPECT_EQ(order.place(Stream::main), 2U);
    EXPECT_TRUE(order.ordered(Stream::main, Stream::main, 2));
    EXPECT_FALSE(order.ordered(Stream::d2h, Stream::main, 1));
    EXPECT_TRUE(order.ordered(Stream::d2h, Stream::main, 0));
}

TEST(StreamOrder, FollowsTheExampleOfItsHeader) {
    StreamOrder order(1);
    order.issue(kernel(Stream::main));
    order.issue(kernel(Stream::main));
    order.issue(wait(Stream::d2h, Stream::main));
    order.issue(kernel(Stream::d2h));
    order.issue(record(Stream::d2h), 0);
    order.issue(kernel(Stream::main));
    EXPECT_TRUE(order.ordered(Stream::d2h, Stream::main, 2));
    EXPECT_FALSE(order.ordered(Stream::d2h, Stream::main, 3));
    EXPECT_FALSE(order.ordered(Stream::main, Stream::d2h, 1));
    order.issue(await(Stream::main), 0);
    EXPECT_TRUE(order.ordered(Stream::main, Stream::d2h, 1));
}

TEST(StreamOrder, WaitsForAnEventAsItWasRecordedLast) {
    StreamOrder order(1);
    order.issue(kernel(Stream::d2h));
    order.issue(record(Stream::d2h), 0);
    order.issue(kernel(Stream::d2h));
    order.issue(await(Stream::main), 0);
    EXPECT_FALSE(order.ordered(Stream::main, Stream::d2h, 2));
    order.issue(record(Stream::d2h), 0);
    order.issue(await(Stream::main), 0);
    EXPECT_TRUE(order.ordered(Stream::main, Stream::d2h, 2));
}

TEST(StreamOrder, PassesOnWhatAStreamWaitedForItself) {
    // h2d waits for d2h, main for h2d: main is behind d2h too, though it never waited for it.
    StreamOrder order;
    order.issue(kernel(Stream::d2h));
    order.issue(wait(Stream::h2d, Stream::d2h));
    order.issue(wait(Stream::main, Stream::h2d));
    EXPECT_TRUE(order.ordered(Stream::main, Stream::d2h, 1));
    EXPECT_FALSE(order.ordered(Stream::receive_forward, Stream::d2h, 1));
}

TEST(StreamOrder, TakesTheHostsWaitsForEveryStreams) {
    StreamOrder order;
    order.issue(kernel(Stream::main));
    order.issue(kernel(Stream::d2h));
    order.issue({.kind = OperationKind::stream_sync, .stream = Stream::main});
    EXPECT_TRUE(order.ordered(Stream::h2d, Stream::main, 1));
    EXPECT_FALSE(order.ordered(Stream::h2d, Stream::d2h, 1));
    order.issue({.kind = OperationKind::device_sync});
    EXPECT_TRUE(order.ordered(Stream::h2d, Stream::d2h, 1));
}

TEST(StreamOrder, PutsAGraphsExternalEventBeforeTheGraphsEnd) {
    // Two kernels, then a graph on its own stream: the event is only known to be behind what the graph waited for.
    StreamOrder order(1);
    order.issue(kernel(Stream::main));
    order.issue(wait(Stream::graph, Stream::main));
    order.issue({.kind = OperationKind::graph_launch, .stream = Stream::graph}, 0);
    order.issue(await(Stream::d2h), 0);
    EXPECT_TRUE(order.ordered(Stream::d2h, Stream::main, 1));
    EXPECT_FALSE(order.ordered(Stream::d2h, Stream::graph, 1));
    EXPECT_EQ(order.place(Stream::graph), 1U);
}

}  // namespace
}  // namespace stowage::program
