// What the simulator refuses, reports and repeats.

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "planner/simulator/simulator.hpp"
#include "tests/support/even_pipeline.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/simulation_options.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using program::Operation;
using tests::EvenPipeline;
using tests::hand_program;
using tests::quiet_node;
using types::literals::operator""_MiB;

/// The message of the std::logic_error that `act` throws, or nothing.
template <class Act>
std::string complaint(Act&& act) {
    try {
        act();
    } catch (const std::logic_error& error) {
        return error.what();
    }
    return "";
}

Operation allocate(std::uint16_t slot, program::Scope scope = 0) {
    return {.kind = OperationKind::allocate, .scope = scope, .slot = slot, .bytes = 32_MiB};
}
Operation free(std::uint16_t slot) { return {.kind = OperationKind::free, .slot = slot, .bytes = 32_MiB}; }
Operation transfer(program::TransferKind kind) {
    return {.kind = OperationKind::peer_transfer, .transfer = kind, .duration = 5us};
}

TEST(Simulator, RefusesAStepThatLeavesMemoryAllocated) {
    const auto program = hand_program({allocate(0), allocate(1), free(0)}, 2);
    EXPECT_NE(complaint([&] { simulate({&program}, quiet_node()); }).find("leaves memory allocated"),
              std::string::npos);
}

TEST(Simulator, RefusesASlotThatIsAllocatedOrFreedTwice) {
    const auto twice = hand_program({allocate(0), allocate(0), free(0)}, 1);
    EXPECT_NE(complaint([&] { simulate({&twice}, quiet_node()); }).find("allocated twice"), std::string::npos);
    const auto empty = hand_program({free(0)}, 1);
    EXPECT_NE(complaint([&] { simulate({&empty}, quiet_node()); }).find("holds nothing"), std::string::npos);
}

TEST(Simulator, RefusesAWaitForAnEventOfAnotherStep) {
    const auto program = hand_program({{.kind = OperationKind::event_wait}}, 0, 1);
    EXPECT_NE(complaint([&] { simulate({&program}, quiet_node()); }).find("not recorded in this step"),
              std::string::npos);
}

TEST(Simulator, KeepsWhatPersists) {
    auto program = hand_program({{.kind = OperationKind::compute, .duration = 1us}}, 0, 0, 1);
    program.bodies.push_back({"setup", {allocate(0, 1)}});
    program.sequence[static_cast<std::size_t>(RunStage::setup)] = {{program::BodyId{1}, -1, -1, 0}};
    const Prediction prediction = simulate({&program}, quiet_node());
    EXPECT_EQ(prediction.ranks[0].setup.allocated_after, 32_MiB);
    EXPECT_EQ(prediction.ranks[0].steady.allocated_after, 32_MiB);
}

TEST(Simulator, TakesATransferWhenBothRanksReachIt) {
    const auto first = hand_program(
        {{.kind = OperationKind::compute, .duration = 10us}, transfer(program::TransferKind::send_forward)});
    const auto second = hand_program(
        {{.kind = OperationKind::compute, .duration = 30us}, transfer(program::TransferKind::receive_forward)});
    const Prediction prediction = simulate({&first, &second}, quiet_node());
    EXPECT_EQ(prediction.step_time, 35us);
    EXPECT_EQ(prediction.ranks[0].steady.duration, 35us);
}

TEST(Simulator, StartsEveryStageOnAllRanksAtOnce) {
    // The second rank is done after 10 us, but its next step begins with the first rank's, 40 us after the last.
    const auto first = hand_program({{.kind = OperationKind::compute, .duration = 40us}});
    const auto second = hand_program({{.kind = OperationKind::compute, .duration = 10us}});
    const Prediction prediction = simulate({&first, &second}, quiet_node());
    EXPECT_EQ(prediction.step_time, 40us);
    EXPECT_EQ(prediction.ranks[1].steady.duration, 10us);
}

TEST(Simulator, ReportsADeadlock) {
    const auto first = hand_program({transfer(program::TransferKind::send_forward)});
    const auto second = hand_program({{.kind = OperationKind::compute, .duration = 1us}});
    EXPECT_NE(complaint([&] { simulate({&first, &second}, quiet_node()); }).find("deadlock"), std::string::npos);
    // Each rank of a ring of waits: the middle one serves the last first, which waits for a second call.
    const auto middle =
        hand_program({transfer(program::TransferKind::send_forward), transfer(program::TransferKind::send_forward),
                      transfer(program::TransferKind::receive_forward)});
    const auto last = hand_program({transfer(program::TransferKind::receive_forward)});
    EXPECT_NE(complaint([&] { simulate({&first, &middle, &last}, quiet_node()); }).find("deadlock"), std::string::npos);
}

TEST(Simulator, RefusesATransferWithAStageThatIsNotThere) {
    const auto program = hand_program({transfer(program::TransferKind::receive_forward)});
    EXPECT_NE(complaint([&] { simulate({&program}, quiet_node()); }).find("not there"), std::string::npos);
}

EvenPipeline offloading_pipeline() {
    EvenPipeline pipeline;
    pipeline.stages = 2;
    pipeline.microbatches = 4;
    pipeline.layers = 3;
    pipeline.layer.core_attn_elements = 9 << 20;
    pipeline.layer.attn_proj_elements = 5 << 20;
    pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
    return pipeline;
}

Bytes reserved_peak(const Prediction& prediction) {
    Bytes peak;
    for (const RankPrediction& rank : prediction.ranks)
        for (const StageResult* stage : {&rank.setup, &rank.record, &rank.steady})
            peak = std::max(peak, stage->peak_reserved);
    return peak;
}

void expect_equal(const StageResult& left, const StageResult& right) {
    EXPECT_EQ(left.duration, right.duration);
    EXPECT_EQ(left.peak_allocated, right.peak_allocated);
    EXPECT_EQ(left.peak_reserved, right.peak_reserved);
    EXPECT_EQ(left.allocated_after, right.allocated_after);
    EXPECT_EQ(left.pinned_peak, right.pinned_peak);
    EXPECT_EQ(left.exposed_copy, right.exposed_copy);
    EXPECT_EQ(left.host_bound, right.host_bound);
    EXPECT_EQ(left.busy, right.busy);
    EXPECT_EQ(left.copy_busy, right.copy_busy);
    EXPECT_EQ(left.copied, right.copied);
    EXPECT_EQ(left.operations, right.operations);
    EXPECT_EQ(left.device_allocation_calls, right.device_allocation_calls);
    EXPECT_EQ(left.cache_flushes, right.cache_flushes);
}

void expect_equal(const Prediction& left, const Prediction& right) {
    EXPECT_EQ(left.step_time, right.step_time);
    EXPECT_EQ(left.record_time, right.record_time);
    ASSERT_EQ(left.ranks.size(), right.ranks.size());
    for (std::size_t i = 0; i < left.ranks.size(); ++i) {
        expect_equal(left.ranks[i].record, right.ranks[i].record);
        expect_equal(left.ranks[i].steady, right.ranks[i].steady);
        EXPECT_EQ(left.ranks[i].pinned, right.ranks[i].pinned);
    }
}

TEST(Simulator, RunsTheSameWithALimitThatIsNotReached) {
    const EvenPipeline pipeline = offloading_pipeline();
    const Prediction unlimited = tests::run(pipeline, quiet_node());
    const Bytes peak = reserved_peak(unlimited);
    const Prediction at_peak = tests::run(pipeline, quiet_node(), tests::limited_to(peak));
    EXPECT_FALSE(at_peak.out_of_memory);
    expect_equal(unlimited, at_peak);
    EXPECT_EQ(at_peak.ranks[0].steady.cache_flushes, 0);
}

TEST(Simulator, ReportsTheRankThatRunsOutOfMemory) {
    EvenPipeline pipeline = offloading_pipeline();
    pipeline.choice.modules = {};
    const Prediction unlimited = tests::run(pipeline, quiet_node());
    // The second stage holds one microbatch less: what it needs is too little for the first.
    ASSERT_LT(unlimited.ranks[1].steady.peak_reserved, unlimited.ranks[0].steady.peak_allocated);
    const Prediction limited =
        tests::run(pipeline, quiet_node(), tests::limited_to(unlimited.ranks[1].steady.peak_reserved));
    ASSERT_TRUE(limited.out_of_memory);
    EXPECT_EQ(*limited.out_of_memory, 0U);
    const Prediction nothing = tests::run(pipeline, quiet_node(), tests::limited_to(2_MiB));
    EXPECT_TRUE(nothing.out_of_memory);  // not even the weights
}

TEST(Simulator, GivesTheCacheBackWhenTheDeviceIsFull) {
    // 48 MiB on one stream, then on another: each stream has free lists of its own, so without a limit both keep a
    // segment. With 64 MiB each has to give way to the other, twice a step, and every change of hands is one segment
    // given back and one taken.
    types::Node node = quiet_node();
    node.host.device_allocation_call = 1us;
    auto take = [](std::uint16_t slot, Stream stream) {
        return Operation{.kind = OperationKind::allocate, .stream = stream, .slot = slot, .bytes = 48_MiB};
    };
    const auto program = hand_program({take(0, Stream::main), free(0), take(1, Stream::h2d), free(1)}, 2);
    const Prediction unlimited = simulate({&program}, node);
    EXPECT_EQ(unlimited.ranks[0].steady.peak_reserved, 96_MiB);
    EXPECT_EQ(unlimited.step_time, 0us);
    const Prediction limited = simulate({&program}, node, tests::limited_to(64_MiB));
    ASSERT_FALSE(limited.out_of_memory);
    EXPECT_EQ(limited.record_time, 3us);  // the first segment finds room
    const StageResult& steady = limited.ranks[0].steady;
    EXPECT_EQ(steady.peak_reserved, 48_MiB);
    EXPECT_EQ(steady.cache_flushes, 2);
    EXPECT_EQ(steady.device_allocation_calls, 2);
    EXPECT_EQ(steady.duration, 4us);
}

TEST(Simulator, WaitsForTheDeviceBeforeItGivesTheCacheBack) {
    // The first block is free for the host, but a copy of 100 us still reads it when the second stream finds no room.
    const auto program =
        hand_program({{.kind = OperationKind::allocate, .slot = 0, .bytes = 48_MiB},
                      {.kind = OperationKind::copy, .stream = Stream::d2h, .bytes = 48_MiB, .duration = 100us},
                      {.kind = OperationKind::record_stream, .stream = Stream::d2h, .slot = 0},
                      free(0),
                      {.kind = OperationKind::allocate, .stream = Stream::h2d, .slot = 1, .bytes = 48_MiB},
                      {.kind = OperationKind::compute, .duration = 5us},
                      free(1)},
                     2);
    EXPECT_EQ(simulate({&program}, quiet_node()).step_time, 100us);
    const Prediction limited = simulate({&program}, quiet_node(), tests::limited_to(64_MiB));
    ASSERT_FALSE(limited.out_of_memory);
    EXPECT_EQ(limited.step_time, 105us);
}

TEST(Simulator, GivesTheSameAnswerTwice) {
    EvenPipeline pipeline = offloading_pipeline();
    types::Node node = quiet_node(300us);
    node.host.kernel_launch = 900ns;
    node.copy.duplex_device_to_host = 0.9;
    node.copy.slowdown[0] = {0.03, 0.04, 0.08};
    expect_equal(tests::run(pipeline, node), tests::run(pipeline, node));
}

}  // namespace
}  // namespace stowage::simulator
