#include "planner/simulator/step_row.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "planner/simulator/simulator.hpp"
#include "tests/support/hand_program.hpp"

namespace stowage::simulator {
namespace {

using program::Operation;
using program::Stream;
using tests::hand_program;
using tests::quiet_node;
using types::literals::operator""_MiB;
using std::chrono::microseconds;

constexpr std::uint16_t kLaunches = 100;

types::Node node_with_queue(std::int64_t depth) {
    types::Node node = quiet_node();
    node.host.launch_queue_depth = depth;
    return node;
}

/// A tensor of 20 MiB that a kernel of 10 us writes and a copy of 1 us takes to the host; then `rest`.
program::StepProgram offloading_step(std::vector<Operation> rest = {}) {
    const Bytes bytes = 20_MiB;
    std::vector<Operation> operations{
        {.kind = OperationKind::allocate, .slot = 0, .bytes = bytes},
        {.kind = OperationKind::compute, .launches = kLaunches, .duration = microseconds(10)},
        {.kind = OperationKind::stream_wait, .stream = Stream::d2h, .other = Stream::main},
        {.kind = OperationKind::copy, .stream = Stream::d2h, .bytes = bytes, .duration = microseconds(1)},
        {.kind = OperationKind::record_stream, .stream = Stream::d2h, .slot = 0},
        {.kind = OperationKind::free, .slot = 0, .bytes = bytes}};
    operations.insert(operations.end(), rest.begin(), rest.end());
    return hand_program(std::move(operations), 1);
}

int steps_of(const program::StepProgram& program, std::int64_t depth) {
    return steps_in_row({&program}, node_with_queue(depth));
}

// One to get there, one to measure, and as many as fill the queue: 250 launches are three steps' at most.
TEST(StepRow, IsAsLongAsTheQueueTakesToFill) {
    EXPECT_EQ(steps_of(offloading_step(), 250), 5);
    EXPECT_EQ(steps_of(offloading_step(), 100), 3);
    EXPECT_EQ(steps_of(offloading_step(), 5000), 8);
}

TEST(StepRow, IsNotNeededWhereEachStepBeginsAlike) {
    const Operation wait{.kind = OperationKind::stream_sync, .stream = Stream::main};
    const Operation kernel{.kind = OperationKind::compute, .duration = microseconds(1)};
    EXPECT_EQ(steps_of(hand_program({kernel, kernel}), 250), 0);
    EXPECT_EQ(steps_of(offloading_step({wait, kernel}), 250), 0);
    EXPECT_EQ(steps_of(offloading_step({{.kind = OperationKind::device_sync}}), 250), 0);
    const Operation other{.kind = OperationKind::stream_sync, .stream = Stream::d2h};
    EXPECT_EQ(steps_of(offloading_step({other}), 250), 5);
}

// Where the host waits and another tensor leaves behind that, one step reaches into the next and no further.
TEST(StepRow, IsOfTwoStepsWhereTheHostWaitsInBetween) {
    program::StepProgram program = offloading_step();
    std::vector<Operation>& operations = program.bodies[0].operations;
    operations.insert(operations.begin(), {.kind = OperationKind::stream_sync, .stream = Stream::main});
    EXPECT_EQ(steps_of(program, 250), 2);
}

// Steps 1 to 3 are given their block at once, while nothing has run: three blocks. The queue has no room for the third
// kernel before the first is done, at 10 us; then step 4 is given its block, and the first one is free at 11 us only:
// four. From then on there is always one that has come free.
TEST(StepRow, ShowsWhatIsReservedWhileTheHostRunsAhead) {
    const program::StepProgram ahead = offloading_step();
    EXPECT_EQ(simulate({&ahead}, node_with_queue(250)).ranks[0].steady.peak_reserved, 80_MiB);
    const program::StepProgram waits = offloading_step({{.kind = OperationKind::device_sync}});
    EXPECT_EQ(simulate({&waits}, node_with_queue(250)).ranks[0].steady.peak_reserved, 20_MiB);
}

// The step that is timed begins on an idle device, whatever ran before it.
TEST(StepRow, LeavesTheTimeOfAStepAlone) {
    const program::StepProgram ahead = offloading_step();
    EXPECT_EQ(simulate({&ahead}, node_with_queue(250)).step_time, microseconds(11));
}

}  // namespace
}  // namespace stowage::simulator
