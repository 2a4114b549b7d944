// What the host thread of a rank does, on programs written by hand.

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "planner/simulator/simulator.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/simulation_options.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using program::Direction;
using program::Operation;
using tests::hand_program;
using tests::quiet_node;
using types::Nanoseconds;
using types::literals::operator""_B;
using types::literals::operator""_MiB;

const SimulationOptions kTraced = tests::traced(tests::without_interference());

Operation kernel(Nanoseconds length, Stream stream = Stream::main) {
    return {.kind = OperationKind::compute, .stream = stream, .duration = length};
}

Operation copy(Direction direction, Nanoseconds length) {
    const bool out = direction == Direction::device_to_host;
    return {.kind = OperationKind::copy,
            .stream = out ? Stream::d2h : Stream::h2d,
            .direction = direction,
            .bytes = 1_MiB,
            .duration = length};
}

Operation allocate(std::uint16_t slot, Bytes bytes, Stream stream = Stream::main) {
    return {.kind = OperationKind::allocate, .stream = stream, .slot = slot, .bytes = bytes};
}

Operation free(std::uint16_t slot, Bytes bytes) { return {.kind = OperationKind::free, .slot = slot, .bytes = bytes}; }

/// When each traced operation of the one instance started, by its number.
std::vector<Nanoseconds> starts(const program::StepProgram& program, const Prediction& prediction) {
    std::vector<Nanoseconds> times(program.bodies[0].operations.size(), Nanoseconds{-1});
    for (const program::TimelineEntry& entry : prediction.ranks[0].timeline.entries)
        times[entry.operation] = entry.start.time_since_epoch();
    return times;
}

TEST(RankSimulator, LeavesTheDeviceIdleWhileTheHostLaunches) {
    types::Node node = quiet_node();
    node.host.kernel_launch = 5us;
    node.host.framework_forward = 2us;
    const auto program = hand_program({kernel(3us), kernel(3us), kernel(10us), kernel(1us)});
    const Prediction prediction = simulate({&program}, node, kTraced);
    // Launched at 7, 14, 21, 28: the device waits 7, 4 and 4 us, and the last kernel waits for the third.
    EXPECT_EQ(starts(program, prediction), (std::vector<Nanoseconds>{7us, 14us, 21us, 31us}));
    EXPECT_EQ(prediction.step_time, 32us);
    EXPECT_EQ(prediction.ranks[0].steady.host_bound, 15us);
    EXPECT_EQ(prediction.ranks[0].steady.operations, 4);
}

Operation of_class(types::KernelClass kernel_class) {
    Operation operation = kernel(1us);
    operation.kernel_class = kernel_class;
    return operation;
}

// A launch is 5 us, a GEMM 8, attention 20; 2 us of the framework come on top of each.
TEST(RankSimulator, ChargesCallsOfLibrariesTheirOwnPrice) {
    types::Node node = quiet_node();
    node.host.kernel_launch = 5us;
    node.host.framework_forward = 2us;
    using types::KernelClass;
    const auto program = hand_program(
        {of_class(KernelClass::gemm), of_class(KernelClass::attention), of_class(KernelClass::memory_bound)});
    EXPECT_EQ(starts(program, simulate({&program}, node, kTraced)), (std::vector<Nanoseconds>{7us, 14us, 21us}));
    node.host.gemm_call = 8us;
    node.host.attention_call = 20us;
    EXPECT_EQ(starts(program, simulate({&program}, node, kTraced)), (std::vector<Nanoseconds>{10us, 32us, 39us}));
}

TEST(RankSimulator, HoldsTheHostWhenTheLaunchQueueIsFull) {
    types::Node node = quiet_node();
    node.host.kernel_launch = 1us;
    node.host.copy_launch = 1us;
    const auto program =
        hand_program({kernel(10us), kernel(10us), kernel(10us), kernel(10us), copy(Direction::device_to_host, 1us)});
    node.host.launch_queue_depth = 1024;
    EXPECT_EQ(starts(program, simulate({&program}, node, kTraced))[4], 5us);
    // Two in flight: the third launch waits for the first kernel (11) and the fourth for the second (21), each takes
    // 1 us more; the copy follows 1 us later.
    node.host.launch_queue_depth = 2;
    const auto times = starts(program, simulate({&program}, node, kTraced));
    EXPECT_EQ(times, (std::vector<Nanoseconds>{1us, 11us, 21us, 31us, 23us}));
}

Operation of_launches(std::uint16_t launches) {
    Operation operation = kernel(10us);
    operation.launches = launches;
    return operation;
}

// Room for four: 3 and 1 lie in the queue at 2 us; the next 3 wait for the first 3 to be done (11), the last 2 for the
// 1 (21). What is more than the queue holds goes in alone.
TEST(RankSimulator, CountsEveryLaunchOfAnOperationInTheQueue) {
    types::Node node = quiet_node();
    node.host.kernel_launch = node.host.copy_launch = 1us;
    node.host.launch_queue_depth = 4;
    const auto program = hand_program(
        {of_launches(3), of_launches(1), of_launches(3), of_launches(2), copy(Direction::device_to_host, 1us)});
    EXPECT_EQ(starts(program, simulate({&program}, node, kTraced)),
              (std::vector<Nanoseconds>{1us, 11us, 21us, 32us, 33us}));
    const auto large = hand_program({of_launches(9), of_launches(9)});
    EXPECT_EQ(starts(large, simulate({&large}, node, kTraced)), (std::vector<Nanoseconds>{1us, 12us}));
}

TEST(RankSimulator, ChargesEventsAndStreamWaitsToTheHost) {
    types::Node node = quiet_node();
    node.host.event_call = 1us;
    const auto program =
        hand_program({kernel(20us),
                      {.kind = OperationKind::event_record, .stream = Stream::main},
                      {.kind = OperationKind::event_wait, .stream = Stream::d2h},
                      copy(Direction::device_to_host, 2us),
                      {.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::d2h},
                      kernel(1us)},
                     0, 1);
    const Prediction prediction = simulate({&program}, node, kTraced);
    const auto times = starts(program, prediction);
    EXPECT_EQ(times[3], 20us);  // after the event, not after its issue at 2 us
    EXPECT_EQ(times[5], 22us);
    EXPECT_EQ(prediction.ranks[0].steady.exposed_copy, 2us);
    EXPECT_EQ(prediction.step_time, 23us);
}

TEST(RankSimulator, WaitsForTheStreamOrForAllOfThem) {
    types::Node node = quiet_node();
    node.host.synchronize = 3us;
    const auto one = hand_program({kernel(10us),
                                   copy(Direction::device_to_host, 50us),
                                   {.kind = OperationKind::stream_sync, .stream = Stream::main},
                                   kernel(1us)});
    EXPECT_EQ(starts(one, simulate({&one}, node, kTraced))[3], 13us);
    const auto all = hand_program(
        {kernel(10us), copy(Direction::device_to_host, 50us), {.kind = OperationKind::device_sync}, kernel(1us)});
    EXPECT_EQ(starts(all, simulate({&all}, node, kTraced))[3], 53us);
}

TEST(RankSimulator, ChargesEverySegmentThatTheAllocatorTakes) {
    types::Node node = quiet_node();
    node.host.device_allocation_call = 7us;
    // 32 MiB twice is two segments, 512 bytes a third; a later step finds them in the cache.
    const auto program = hand_program({allocate(0, 32_MiB), allocate(1, 32_MiB), allocate(2, 512_B), kernel(1us),
                                       free(0, 32_MiB), free(1, 32_MiB), free(2, 512_B)},
                                      3);
    const Prediction prediction = simulate({&program}, node, {});
    EXPECT_EQ(prediction.record_time, 3 * 7us + 1us);
    EXPECT_EQ(prediction.step_time, 1us);
    EXPECT_EQ(prediction.ranks[0].record.device_allocation_calls, 3);
    EXPECT_EQ(prediction.ranks[0].steady.device_allocation_calls, 0);
    EXPECT_EQ(prediction.ranks[0].steady.peak_allocated, 64_MiB + 512_B);
    EXPECT_EQ(prediction.ranks[0].steady.peak_reserved, 66_MiB);
}

TEST(RankSimulator, ChargesPinnedMemoryOnceForEachBuffer) {
    types::Node node = quiet_node();
    node.host.pinned_allocation_per_gib = 1024us;  // 1 us a MiB
    const Operation acquire{.kind = OperationKind::pinned_acquire, .detail = 1, .bytes = 4_MiB};
    const Operation release{.kind = OperationKind::pinned_release, .bytes = 4_MiB};
    const auto program = hand_program({acquire, kernel(1us), release}, 1);
    const Prediction prediction = simulate({&program}, node, {});
    EXPECT_EQ(prediction.record_time, 4us + 1us);
    EXPECT_EQ(prediction.step_time, 1us);
    EXPECT_EQ(prediction.ranks[0].pinned.reserved, 4_MiB);
}

/// Copies that are issued at once, then two tensors of new segments and a kernel of 500 us.
program::StepProgram allocating_beside(std::vector<Operation> operations) {
    operations.insert(operations.end(),
                      {allocate(0, 20_MiB), allocate(1, 20_MiB), kernel(500us), free(0, 20_MiB), free(1, 20_MiB)});
    return hand_program(std::move(operations), 2);
}

// Slices of 100 us: the first call comes back at 100 us, the second when the copies are done, at 150 or 120. Copies
// from the host, gaps and steps that allocate nothing know no slices.
TEST(RankSimulator, AllocatesBetweenTheSlicesOfCopiesToTheHost) {
    types::Node node = quiet_node();
    node.copy.time_slice = 100us;
    const auto first_of = [&](std::vector<Operation> copies) {
        const auto program = allocating_beside(std::move(copies));
        const Prediction prediction = simulate({&program}, node, tests::without_interference());
        EXPECT_EQ(prediction.step_time, 500us);
        return prediction.record_time;
    };
    const auto out = [](Nanoseconds length) { return copy(Direction::device_to_host, length); };
    EXPECT_EQ(first_of({out(150us)}), 650us);
    EXPECT_EQ(first_of({out(60us), out(60us)}), 620us);
    EXPECT_EQ(first_of({out(250us)}), 700us);
    EXPECT_EQ(first_of({copy(Direction::host_to_device, 150us)}), 500us);
    node.copy.time_slice = {};
    EXPECT_EQ(first_of({out(150us)}), 500us);
}

TEST(RankSimulator, ReusesABlockOnlyWhenTheOtherStreamIsDoneWithIt) {
    // The block is freed while a copy of 100 us still reads it. At once its successor needs a second segment; after a
    // synchronisation it gets the first. Every step begins on an idle device.
    const Operation uses{.kind = OperationKind::record_stream, .stream = Stream::d2h};
    auto program_with = [&](bool synchronised) {
        std::vector<Operation> operations{allocate(0, 32_MiB), copy(Direction::device_to_host, 100us), uses,
                                          free(0, 32_MiB)};
        if (synchronised) operations.push_back({.kind = OperationKind::device_sync});
        operations.insert(operations.end(), {allocate(1, 32_MiB), kernel(1us), free(1, 32_MiB)});
        operations.push_back({.kind = OperationKind::device_sync});
        return hand_program(operations, 2);
    };
    const auto at_once = program_with(false);
    const auto waiting = program_with(true);
    EXPECT_EQ(simulate({&at_once}, quiet_node(), {}).ranks[0].steady.peak_reserved, 64_MiB);
    EXPECT_EQ(simulate({&waiting}, quiet_node(), {}).ranks[0].steady.peak_reserved, 32_MiB);
    EXPECT_EQ(simulate({&at_once}, quiet_node(), {}).ranks[0].steady.peak_allocated, 32_MiB);
}

TEST(RankSimulator, KeepsAMemoryTraceOnlyWhenAsked) {
    const auto program = hand_program({allocate(0, 32_MiB), kernel(5us), free(0, 32_MiB)}, 1);
    EXPECT_TRUE(simulate({&program}, quiet_node(), {}).ranks[0].timeline.memory.empty());
    types::Node node = quiet_node();
    node.host.kernel_launch = 1us;
    const Prediction traced = simulate({&program}, node, kTraced);
    const auto& samples = traced.ranks[0].timeline.memory;
    ASSERT_EQ(samples.size(), 2U);
    EXPECT_EQ(samples[0].time, types::SimTime{});
    EXPECT_EQ(samples[0].allocated, 32_MiB);
    EXPECT_EQ(samples[1].time, types::SimTime{1us});  // the host frees while the kernel still runs
    EXPECT_EQ(samples[1].allocated, 0_B);
    EXPECT_EQ(samples[1].reserved, 32_MiB);
}

// As an executor runs a rank: what comes from the neighbour takes its own time and is waited for no longer.
TEST(RankSimulator, RunsAloneWithoutNeighbours) {
    const Operation receive{.kind = OperationKind::peer_transfer,
                            .stream = Stream::receive_forward,
                            .transfer = program::TransferKind::receive_forward,
                            .duration = 30us};
    const Operation wait{.kind = OperationKind::stream_wait, .stream = Stream::main, .other = Stream::receive_forward};
    const auto program = hand_program({receive, wait, kernel(100us)});
    SimulationOptions options;
    options.alone = true;
    EXPECT_EQ(simulate({&program}, quiet_node(), options).step_time, 130us);
    options.trace = true;
    EXPECT_EQ(starts(program, simulate({&program}, quiet_node(), options)),
              (std::vector<Nanoseconds>{0us, -1ns, 30us}));
    EXPECT_THROW(simulate({&program, &program}, quiet_node(), options), std::logic_error);
}

}  // namespace
}  // namespace stowage::simulator
