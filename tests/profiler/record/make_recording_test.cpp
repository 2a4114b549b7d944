#include "profiler/record/make_recording.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace stowage::profiler {
namespace {

using recording::Event;
using recording::EventKind;
using recording::Site;
using recording::Step;
using types::Bytes;
using types::Nanoseconds;

Activity kernel(std::int64_t start, std::int64_t end, std::uint32_t correlation, OperationNumber under) {
    Activity activity;
    activity.name = 1;
    activity.start = Nanoseconds{start};
    activity.end = Nanoseconds{end};
    activity.stream = 7;
    activity.correlation = correlation;
    activity.issued_under = under;
    return activity;
}

Activity node(Activity activity, std::uint64_t number) {
    activity.graph = 1;
    activity.graph_node = number;
    return activity;
}

Activity copy(Activity activity, CopyKind kind, std::int64_t bytes) {
    activity.kind = ActivityKind::copy;
    activity.copy_kind = kind;
    activity.name = 0;
    activity.bytes = Bytes{bytes};
    return activity;
}

Mark mark(const std::string& module, std::int32_t layer, std::int32_t microbatch = 0) {
    return {.module = module, .phase = "forward", .work = module + ".work", .layer = layer, .microbatch = microbatch};
}

RawStep step_of(std::vector<Activity> activities, std::unordered_map<OperationNumber, Mark> marks,
                const std::string& stage = "eager") {
    RawStep step;
    step.stage = stage;
    step.activities.names = {"", "gemm"};
    step.activities.activities = std::move(activities);
    step.marks = std::move(marks);
    return step;
}

// The example of the header: operation 7 launched two kernels by two calls, operation 9 one. Times count from the
// first.
TEST(MakeRecording, CountsOperationsInTheOrderOfIssue) {
    const RawStep step = step_of({kernel(1000, 1010, 100, 7), kernel(1020, 1050, 103, 9), kernel(1012, 1019, 101, 7)},
                                 {{7, mark("core_attn", 0)}, {9, mark("mlp_fc1", 0)}});
    const recording::Recording recording = make_recording({step}, {});
    EXPECT_EQ(recording.sites,
              (std::vector<Site>{{"core_attn", "forward", "core_attn.work"}, {"mlp_fc1", "forward", "mlp_fc1.work"}}));
    EXPECT_EQ(recording.names, (std::vector<std::string>{"", "gemm"}));
    ASSERT_EQ(recording.steps.size(), 1U);
    const Step& made = recording.steps[0];
    ASSERT_EQ(made.events.size(), 3U);
    EXPECT_EQ(made.duration, Nanoseconds{50});
    EXPECT_EQ(made.unmatched, 0U);
    Event expected;
    expected.layer = expected.microbatch = 0;
    expected.stream = 7;
    expected.name = 1;
    expected.duration = Nanoseconds{10};
    EXPECT_EQ(made.events[0], expected);
    expected.start = Nanoseconds{12};
    expected.duration = Nanoseconds{7};
    EXPECT_EQ(made.events[1], expected);
    expected.site = 1;
    expected.operation = 1;
    expected.start = Nanoseconds{20};
    expected.duration = Nanoseconds{30};
    EXPECT_EQ(made.events[2], expected);
}

// Numbers of operations say nothing of their order; a copy that ran late keeps the place where it was issued.
TEST(MakeRecording, FollowsTheHostAndNotTheDevice) {
    const RawStep step = step_of(
        {copy(kernel(50, 90, 11, 3), CopyKind::device_to_host, 64), kernel(0, 40, 10, 5), kernel(41, 60, 12, 4)},
        {{3, mark("core_attn", 0)}, {4, mark("attn_proj", 0)}, {5, mark("core_attn", 0)}});
    const std::vector<Event> events = make_recording({step}, {}).steps[0].events;
    EXPECT_EQ(events[0].operation, 0U);
    EXPECT_EQ(events[1].operation, 2U);  // the kernel that starts at 41 was issued last
    EXPECT_EQ(events[2].operation, 1U);
    EXPECT_EQ(events[2].kind, EventKind::device_to_host);
    EXPECT_EQ(events[2].bytes, Bytes{64});
    EXPECT_EQ(events[2].name, 0U);
}

// One capture under operations 20 and 21, launched under 1 and 2 for microbatches 0 and 1: four operations.
TEST(MakeRecording, GivesEveryLaunchOfAGraphOperationsOfItsOwn) {
    RawStep step = step_of({node(kernel(0, 4, 50, 1), 9), node(kernel(5, 6, 50, 1), 8), node(kernel(10, 14, 51, 2), 9),
                            node(kernel(15, 16, 51, 2), 8)},
                           {{1, mark("graph", 3, 0)},
                            {2, mark("graph", 3, 1)},
                            {20, mark("attn_norm", 0, 0)},
                            {21, mark("qkv_linear", 0, 0)}},
                           "steady");
    step.graphs = true;
    step.activities.node_operations = {{9, 20}, {8, 21}};
    const recording::Recording recording = make_recording({step}, {});
    const std::vector<Event>& events = recording.steps[0].events;
    ASSERT_EQ(events.size(), 4U);
    EXPECT_TRUE(recording.steps[0].graphs);
    for (std::uint32_t i = 0; i < 4; ++i) {
        EXPECT_EQ(events[i].operation, i);
        EXPECT_EQ(recording.sites[events[i].site].module, i % 2 == 0 ? "attn_norm" : "qkv_linear");
        EXPECT_EQ(events[i].layer, 3);  // of the launch: the capture stands for every layer that replays it
        EXPECT_EQ(events[i].microbatch, i < 2 ? 0 : 1);
        EXPECT_TRUE(events[i].in_graph);
    }
}

TEST(MakeRecording, CountsWhatNoMarkCovers) {
    RawStep step = step_of({kernel(0, 1, 10, kNoOperation), kernel(2, 3, 11, kNoOperation),
                            node(kernel(4, 5, 12, 7), 99), kernel(6, 7, 13, 7)},
                           {{7, mark("core_attn", 0)}});
    step.activities.dropped = 4;
    step.activities.untimed = 1;
    const recording::Recording recording = make_recording({step}, {});
    EXPECT_EQ(recording.steps[0].unmatched, 3U);
    EXPECT_EQ(recording.steps[0].dropped, 5U);
    EXPECT_EQ(recording.sites[recording.steps[0].events[0].site], Site{});
    EXPECT_EQ(recording.steps[0].events[0].layer, -1);
    EXPECT_EQ(recording.steps[0].events[1].operation, 1U);
}

// Its kernels are those of the other steps; alone, it keeps them.
TEST(MakeRecording, KeepsOfARecordStepItsCopies) {
    const RawStep record = step_of({kernel(0, 9, 1, 7), copy(kernel(10, 20, 2, 7), CopyKind::device_to_host, 64)},
                                   {{7, mark("core_attn", 0)}}, "record");
    const RawStep eager = step_of({kernel(0, 9, 1, 7)}, {{7, mark("core_attn", 0)}});
    const recording::Recording both = make_recording({eager, record}, {});
    ASSERT_EQ(both.steps[1].events.size(), 1U);
    EXPECT_EQ(both.steps[1].events[0].kind, EventKind::device_to_host);
    EXPECT_EQ(both.steps[1].events[0].start, Nanoseconds{10});
    EXPECT_EQ(both.steps[1].duration, Nanoseconds{20});
    EXPECT_EQ(make_recording({record}, {}).steps[0].events.size(), 2U);
}

// Two kernels a step and room for five: the third step is left out. The first stays however long it is.
TEST(MakeRecording, LeavesOutStepsForWhichThereIsNoRoom) {
    const RawStep step = step_of({kernel(0, 1, 1, 7), kernel(2, 3, 2, 7)}, {{7, mark("core_attn", 0)}});
    EXPECT_EQ(make_recording({step, step, step}, {}, {.most_events = 5}).steps.size(), 2U);
    EXPECT_EQ(make_recording({step, step}, {}, {.most_events = 1}).steps.size(), 1U);
}

TEST(MakeRecording, TakesGroupsFromTheRecordStep) {
    RawStep eager = step_of({}, {{7, mark("core_attn", 0)}});
    eager.memory = {{MemoryEvent::Kind::save, 0x100, Bytes{8}, Nanoseconds{1}, 7}};
    RawStep record = step_of({}, {{8, mark("attn_proj", 0)}}, "record");
    record.memory = {{MemoryEvent::Kind::save, 0x100, Bytes{8}, Nanoseconds{1}, 8}};
    EXPECT_EQ(make_recording({eager, record}, {}).groups.at(0).module, "attn_proj");
    EXPECT_EQ(make_recording({eager}, {}).groups.at(0).module, "core_attn");
    EXPECT_TRUE(make_recording({step_of({}, {})}, {}).groups.empty());
}

TEST(MakeRecording, KeepsWhatTheHeaderSays) {
    recording::Recording header;
    header.source = "stowage";
    header.scenario_name = "dense";
    header.step_times = {Nanoseconds{5}};
    const recording::Recording recording = make_recording({}, header);
    EXPECT_EQ(recording.source, "stowage");
    EXPECT_EQ(recording.scenario_name, "dense");
    EXPECT_EQ(recording.step_times, header.step_times);
    EXPECT_TRUE(recording.steps.empty());
}

}  // namespace
}  // namespace stowage::profiler
