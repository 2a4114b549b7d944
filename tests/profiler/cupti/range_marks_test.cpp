#include "profiler/cupti/range_marks.hpp"

#include <gtest/gtest.h>

#include "profiler/cupti/correlate.hpp"
#include "profiler/cupti/name_table.hpp"

namespace stowage::profiler {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;
using types::Nanoseconds;

Mark mark(const std::string& module, const std::string& phase, std::int32_t layer) {
    Mark made;
    made.module = module;
    made.phase = phase;
    made.layer = layer;
    return made;
}

constexpr std::uint32_t kMain = 100;
constexpr std::uint32_t kOther = 200;

/// Builds recordings line by line.
class RecordingMaker {
public:
    void range(const std::string& name, Nanoseconds start, Nanoseconds end, std::uint32_t thread = kMain) {
        NvtxRange made;
        made.name = names_.index_of(name);
        made.thread = thread;
        made.start = start;
        made.end = end;
        recording_.ranges.push_back(made);
    }
    void call(std::uint32_t correlation, Nanoseconds start, std::uint32_t thread = kMain,
              CallApi api = CallApi::runtime) {
        Call made;
        made.api = api;
        made.thread = thread;
        made.correlation = correlation;
        made.start = start;
        made.end = start + 1ns;
        recording_.calls.push_back(made);
    }
    void kernel(std::uint32_t correlation, Nanoseconds start, std::uint64_t node = 0) {
        Activity made;
        made.correlation = correlation;
        made.start = start;
        made.end = start + 1ns;
        made.graph_node = node;
        recording_.activities.push_back(made);
    }
    void node(std::uint64_t number, std::uint64_t original, Nanoseconds made, std::uint32_t thread = kMain) {
        recording_.nodes.push_back({number, original, thread, made});
    }
    void say(const std::string& name, Nanoseconds time, std::uint32_t thread = kMain) {
        NvtxMark made;
        made.name = names_.index_of(name);
        made.thread = thread;
        made.time = time;
        recording_.marks.push_back(made);
    }
    Recording done() {
        recording_.names = names_.names();
        return recording_;
    }

private:
    NameTable names_;
    Recording recording_;
};

TEST(MarksInside, TakeFromTheOuterOneWhatTheInnerOneLeavesOpen) {
    Mark outer = mark("attention", "forward", 3);
    outer.microbatch = 1;
    outer.chunk = 2;
    outer.work = "w";
    Mark inner;
    inner.module = "core_attn";
    Mark expected = outer;
    expected.module = "core_attn";
    EXPECT_EQ(inside(outer, inner), expected);
    EXPECT_EQ(inside(Mark{}, outer), outer);
    EXPECT_EQ(inside(outer, Mark{}), outer);
}

// The example of the header.
TEST(MarksAt, AreThoseOfTheRangesThatAreOpenOnTheThread) {
    RecordingMaker maker;
    maker.range("stowage:phase=forward;layer=3", 10ns, 40ns);
    maker.range("stowage:module=core_attn", 20ns, 30ns);
    maker.range("an ordinary range", 22ns, 28ns);
    const Recording recording = maker.done();
    const std::vector<HostMoment> moments = {{kMain, 35ns}, {kMain, 25ns}, {kOther, 25ns}, {kMain, 5ns}, {kMain, 45ns}};
    EXPECT_EQ(marks_at(recording, moments),
              (std::vector<Mark>{mark("", "forward", 3), mark("core_attn", "forward", 3), {}, {}, {}}));
}

TEST(MarksAt, CountARangeFromItsStartToBeforeItsEnd) {
    RecordingMaker maker;
    maker.range("stowage:module=a", 10ns, 20ns);
    const Recording recording = maker.done();
    const std::vector<HostMoment> moments = {{kMain, 9ns}, {kMain, 10ns}, {kMain, 19ns}, {kMain, 20ns}};
    EXPECT_EQ(marks_at(recording, moments), (std::vector<Mark>{{}, mark("a", "", -1), mark("a", "", -1), {}}));
}

// As backward hooks do: the outer one ends first. What began last counts.
TEST(MarksAt, AllowRangesThatDoNotNest) {
    RecordingMaker maker;
    maker.range("stowage:module=a", 10ns, 30ns);
    maker.range("stowage:module=b", 20ns, 40ns);
    const Recording recording = maker.done();
    const std::vector<HostMoment> moments = {{kMain, 15ns}, {kMain, 25ns}, {kMain, 35ns}};
    EXPECT_EQ(marks_at(recording, moments),
              (std::vector<Mark>{mark("a", "", -1), mark("b", "", -1), mark("b", "", -1)}));
}

TEST(MarksAt, AreEverywhereIfNobodyKnowsTheThread) {
    RecordingMaker maker;
    maker.range("stowage:phase=backward", 10ns, kStillOpen, 0);
    const Recording recording = maker.done();
    const std::vector<HostMoment> moments = {{kMain, 15ns}, {kOther, 15ns}};
    EXPECT_EQ(marks_at(recording, moments), (std::vector<Mark>{mark("", "backward", -1), mark("", "backward", -1)}));
}

TEST(FieldOf, FindsWhatMarksDoNotKnow) {
    EXPECT_EQ(field_of("stowage:save;address=7f00;bytes=4096", "bytes"), "4096");
    EXPECT_EQ(field_of("stowage:save;address=7f00;bytes=4096", "address"), "7f00");
    EXPECT_EQ(field_of("stowage:stage=eager", "stage"), "eager");
    EXPECT_EQ(field_of("stowage:save;bytes", "bytes"), "");
    EXPECT_EQ(field_of("stowage:save;kilobytes=4", "bytes"), "");
    EXPECT_EQ(field_of("", "bytes"), "");
}

TEST(StepsByRanges, IssueActivitiesUnderTheirCalls) {
    RecordingMaker maker;
    maker.range("stowage:module=core_attn;phase=forward;layer=3", 10ns, 20ns);
    maker.call(7, 15ns);
    maker.call(7, 16ns, kMain, CallApi::driver);  // made by the one before
    maker.call(8, 25ns);
    maker.kernel(7, 100ns);
    maker.kernel(7, 200ns);
    maker.kernel(8, 300ns);
    maker.kernel(9, 400ns);  // whose call was not recorded
    const std::vector<RawStep> steps = steps_by_ranges(maker.done());
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_EQ(steps[0].stage, "");
    EXPECT_FALSE(steps[0].graphs);
    const auto& activities = steps[0].activities.activities;
    EXPECT_EQ(activities.at(0).issued_under, 7U);
    EXPECT_EQ(activities.at(1).issued_under, 7U);
    EXPECT_EQ(activities.at(2).issued_under, 8U);
    EXPECT_EQ(activities.at(3).issued_under, kNoOperation);
    EXPECT_EQ(steps[0].marks, (std::unordered_map<OperationNumber, Mark>{{7, mark("core_attn", "forward", 3)}}));
}

// Captured at 15 and 25 under two modules; the executable graph's nodes 103 and 104 run twice, launched by calls 50 and
// 51, of which the second is in a microbatch.
TEST(StepsByRanges, GiveNodesTheMarksOfTheirCapture) {
    RecordingMaker maker;
    maker.range("stowage:module=a", 10ns, 20ns);
    maker.range("stowage:module=b", 20ns, 30ns);
    maker.range("stowage:microbatch=1", 60ns, 70ns);
    maker.node(3, 0, 15ns);
    maker.node(4, 0, 25ns);
    maker.node(103, 0, 40ns);  // told as made, too
    maker.node(103, 3, 41ns);
    maker.node(104, 4, 42ns);
    maker.call(50, 50ns);
    maker.call(51, 65ns);
    for (const std::uint32_t launch : {50U, 51U}) {
        maker.kernel(launch, 100ns, 103);
        maker.kernel(launch, 110ns, 104);
        maker.kernel(launch, 120ns, 105);  // whose making was not seen
    }
    const std::vector<RawStep> steps = steps_by_ranges(maker.done());
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_TRUE(steps[0].graphs);
    const NodeOperations& nodes = steps[0].activities.node_operations;
    ASSERT_EQ(nodes.size(), 2U);
    EXPECT_EQ(steps[0].marks.at(nodes.at(103)), mark("a", "", -1));
    EXPECT_EQ(steps[0].marks.at(nodes.at(104)), mark("b", "", -1));
    EXPECT_FALSE(steps[0].marks.contains(50));
    EXPECT_EQ(steps[0].marks.at(51).microbatch, 1);
    // As correlate has it, an operation for each node and launch.
    EXPECT_EQ(correlate(steps[0].activities.activities, nodes).operations.size(), 4U);
}

TEST(StepsByRanges, FollowNodesThroughCopiesOfGraphs) {
    RecordingMaker maker;
    maker.range("stowage:module=a", 10ns, 20ns);
    maker.node(3, 0, 15ns);
    maker.node(30, 3, 40ns);
    maker.node(300, 30, 50ns);
    maker.node(8, 9, 50ns);  // in a circle
    maker.node(9, 8, 50ns);
    maker.kernel(1, 100ns, 300);
    maker.kernel(1, 100ns, 8);
    const std::vector<RawStep> steps = steps_by_ranges(maker.done());
    const NodeOperations& nodes = steps.at(0).activities.node_operations;
    ASSERT_EQ(nodes.size(), 1U);
    EXPECT_EQ(steps[0].marks.at(nodes.at(300)), mark("a", "", -1));
}

TEST(StepsByRanges, KeepNodesThatAreKnownAlready) {
    RecordingMaker maker;
    maker.node(3, 0, 15ns);
    maker.kernel(1, 100ns, 3);
    Recording recording = maker.done();
    recording.node_operations = {{3, 77}};
    EXPECT_EQ(steps_by_ranges(recording).at(0).activities.node_operations, (NodeOperations{{3, 77}}));
}

TEST(StepsByRanges, MakeMemoryEventsOfMarks) {
    RecordingMaker maker;
    maker.range("stowage:module=core_attn;layer=3", 10ns, 20ns);
    maker.say("stowage:save;address=7f00;bytes=4096", 15ns);
    maker.say("stowage:free;address=7f00;bytes=4096;time=12", 25ns);  // said later than it happened
    maker.say("stowage:allocate;address=zz;bytes=1", 15ns);
    maker.say("stowage:save;address=7f00", 15ns);
    maker.say("hello", 15ns);
    const std::vector<RawStep> steps = steps_by_ranges(maker.done());
    const std::vector<MemoryEvent>& memory = steps.at(0).memory;
    ASSERT_EQ(memory.size(), 2U);
    EXPECT_EQ(memory[0].kind, MemoryEvent::Kind::free);  // in the order in which it happened
    EXPECT_EQ(memory[0].time, 12ns);
    EXPECT_EQ(memory[1].kind, MemoryEvent::Kind::save);
    EXPECT_EQ(memory[1].address, 0x7f00U);
    EXPECT_EQ(memory[1].bytes, 4_KiB);
    EXPECT_EQ(memory[1].time, 15ns);
    EXPECT_EQ(steps[0].marks.at(memory[1].issued_under), mark("core_attn", "", 3));
    EXPECT_EQ(steps[0].marks.at(memory[0].issued_under), mark("core_attn", "", 3));
}

// An allocator's events are said at once, later, and by a thread that did not make them: what counts is when they were.
// The system's clock showed 1000 when CUPTI's was at 30, so that 985 is 15.
TEST(StepsByRanges, PutMemoryEventsWhereTheyHappened) {
    RecordingMaker maker;
    maker.range("stowage:module=a;phase=backward", 10ns, 20ns, kOther);
    maker.range("stowage:module=b", 28ns, 40ns);
    maker.say("stowage:clock;time=1000", 30ns);
    maker.say("stowage:free;address=7f00;bytes=4096;time=985", 31ns);
    const RawStep step = steps_by_ranges(maker.done()).at(0);
    ASSERT_EQ(step.memory.size(), 1U);
    EXPECT_EQ(step.memory[0].time, 15ns);
    EXPECT_EQ(step.marks.at(step.memory[0].issued_under), mark("a", "backward", -1));
}

// Issued at 15 by one thread and 25 by another, both in the second step although they ran after it.
TEST(StepsByRanges, CutWhereStepsAreMarked) {
    RecordingMaker maker;
    maker.range("stowage:step;stage=record", 0ns, 10ns);
    maker.range("stowage:step;stage=eager", 10ns, 30ns);
    maker.range("stowage:step=not one", 11ns, 12ns);
    maker.range("stowage:module=a", 12ns, 20ns);
    maker.call(1, 5ns);
    maker.call(2, 15ns);
    maker.call(3, 25ns, kOther);
    maker.call(4, 35ns);
    for (const std::uint32_t correlation : {1U, 2U, 3U, 4U}) maker.kernel(correlation, 50ns);
    maker.say("stowage:save;address=1;bytes=2", 16ns);
    maker.node(3, 0, 15ns);
    maker.kernel(2, 60ns, 3);
    maker.kernel(1, 60ns, 3);
    Recording recording = maker.done();
    recording.dropped = 4;
    const std::vector<RawStep> steps = steps_by_ranges(recording);
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0].stage, "record");
    ASSERT_EQ(steps[0].activities.activities.size(), 2U);
    EXPECT_EQ(steps[0].activities.activities[0].correlation, 1U);
    EXPECT_TRUE(steps[0].memory.empty());
    // The node was captured in the other step, under the module; its launch was under nothing.
    ASSERT_EQ(steps[0].marks.size(), 1U);
    EXPECT_EQ(steps[0].marks.at(steps[0].activities.node_operations.at(3)), mark("a", "", -1));
    EXPECT_EQ(steps[0].activities.dropped, 4U);
    EXPECT_TRUE(steps[0].graphs);
    EXPECT_EQ(steps[1].stage, "eager");
    ASSERT_EQ(steps[1].activities.activities.size(), 3U);
    EXPECT_EQ(steps[1].activities.activities[0].correlation, 2U);
    EXPECT_EQ(steps[1].activities.activities[1].correlation, 3U);
    EXPECT_EQ(steps[1].activities.activities[2].graph_node, 3U);
    EXPECT_EQ(steps[1].activities.dropped, 4U);
    EXPECT_EQ(steps[1].activities.calls.size(), 2U);
    EXPECT_EQ(steps[1].memory.size(), 1U);
    EXPECT_EQ(steps[1].marks.at(2), mark("a", "", -1));
}

}  // namespace
}  // namespace stowage::profiler
