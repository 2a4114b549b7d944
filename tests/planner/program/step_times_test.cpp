#include <gtest/gtest.h>

#include <utility>

#include "planner/program/step_times.hpp"
#include "tests/support/hand_program.hpp"

namespace stowage::program {
namespace {

Operation operation(OperationKind kind, Stream stream) {
    Operation one;
    one.kind = kind;
    one.stream = stream;
    return one;
}

/// Operations 0 to 3: a kernel, a collective, a copy to the host, a kernel.
StepProgram small_program() {
    Operation copy = operation(OperationKind::copy, Stream::d2h);
    copy.direction = Direction::device_to_host;
    return tests::hand_program({operation(OperationKind::compute, Stream::main),
                                operation(OperationKind::collective, Stream::communication), copy,
                                operation(OperationKind::compute, Stream::main)});
}

TimelineEntry entry(std::uint32_t number, Stream stream, std::int64_t start, std::int64_t end) {
    TimelineEntry one;
    one.operation = number;
    one.stream = stream;
    one.start = types::SimTime{Nanoseconds{start}};
    one.end = types::SimTime{Nanoseconds{end}};
    return one;
}

// The example of step_times.hpp: 10 + 10 of kernels, 8 to 20 of a delay beside 0 to 10, 15 to 30 of a copy.
TEST(StepTimes, TellsWaitsFromCopiesThatNothingHides) {
    StageTimeline timeline;
    timeline.entries = {entry(0, Stream::main, 0, 10), entry(1, Stream::communication, 8, 20),
                        entry(2, Stream::d2h, 15, 30), entry(3, Stream::main, 30, 40)};
    const StepTimes times = step_times(small_program(), timeline);
    EXPECT_EQ(times.main_busy, Nanoseconds{20});
    EXPECT_EQ(times.modelled_waits, Nanoseconds{10});
    EXPECT_EQ(times.exposed_copy, Nanoseconds{10});
    EXPECT_EQ(times.copy_busy[0], Nanoseconds{15});
    EXPECT_EQ(times.copy_busy[1], Nanoseconds{0});
}

TEST(StepTimes, CountsOverlappingKernelsOnce) {
    StageTimeline timeline;
    timeline.entries = {entry(0, Stream::main, 5, 10), entry(3, Stream::main, 8, 12), entry(3, Stream::main, 2, 3)};
    EXPECT_EQ(step_times(small_program(), timeline).main_busy, Nanoseconds{8}) << "2 to 3 and 5 to 12";
}

TEST(StepTimes, PassesOverWhatTheProgramHasNot) {
    StageTimeline timeline;
    timeline.entries = {entry(9, Stream::main, 0, 10)};
    TimelineEntry elsewhere = entry(0, Stream::main, 0, 10);
    elsewhere.instance = 7;
    timeline.entries.push_back(elsewhere);
    EXPECT_EQ(step_times(small_program(), timeline).main_busy, Nanoseconds{0});
}

TEST(StepTimes, FindsNodesOfGraphsAmongTheOperationsThatWereCaptured) {
    const StepProgram program = tests::hand_graphs({{operation(OperationKind::compute, Stream::main)}},
                                                   {operation(OperationKind::graph_launch, Stream::main)});
    const auto& captured = program.instances(RunStage::capture);
    TimelineEntry node = entry(0, Stream::main, 0, 10);
    StageTimeline timeline;
    for (std::uint32_t i = 0; i < captured.size(); ++i) {
        const auto& operations = program.bodies[index(captured[i].body)].operations;
        for (std::uint32_t number = 0; number < operations.size(); ++number) {
            if (operations[number].kind != OperationKind::compute) continue;
            node.captured = i;
            node.operation = number;
            timeline.entries.push_back(node);
        }
    }
    ASSERT_EQ(timeline.entries.size(), 1U);
    EXPECT_EQ(step_times(program, timeline).main_busy, Nanoseconds{10});
}

}  // namespace
}  // namespace stowage::program
