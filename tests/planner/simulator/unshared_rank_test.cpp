// The short way of ranks that share nothing, held against the general one.

#include "planner/simulator/unshared_rank.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "planner/simulator/simulator.hpp"
#include "tests/support/even_pipeline.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/simulation_options.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using program::Operation;
using program::TransferKind;
using tests::hand_program;
using tests::quiet_node;
using types::Nanoseconds;
using types::literals::operator""_MiB;

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

void expect_the_same_both_ways(const std::vector<const program::StepProgram*>& programs, const types::Node& node) {
    for (const program::StepProgram* program : programs) ASSERT_TRUE(UnsharedRank::handles(*program, node, {}));
    const Prediction short_way = simulate(programs, node);
    SimulationOptions plain;
    plain.plain = true;
    const Prediction general = simulate(programs, node, plain);
    EXPECT_EQ(short_way.step_time, general.step_time);
    EXPECT_EQ(short_way.record_time, general.record_time);
    ASSERT_EQ(short_way.ranks.size(), general.ranks.size());
    for (std::size_t i = 0; i < general.ranks.size(); ++i) {
        SCOPED_TRACE(i);
        expect_equal(short_way.ranks[i].setup, general.ranks[i].setup);
        expect_equal(short_way.ranks[i].record, general.ranks[i].record);
        expect_equal(short_way.ranks[i].steady, general.ranks[i].steady);
        EXPECT_EQ(short_way.ranks[i].pinned, general.ranks[i].pinned);
    }
}

/// Operations of a ring of ranks, drawn at random. The halves of a transfer are drawn together, so that nothing
/// deadlocks.
class RandomRanks {
public:
    static constexpr std::uint32_t kSlots = 12;
    static constexpr std::uint32_t kEvents = 4;

    RandomRanks(std::size_t ranks, std::uint64_t seed)
        : random_(seed), operations_(ranks), live_(ranks, std::vector<bool>(kSlots)), recorded_(ranks) {}

    std::vector<program::StepProgram> draw(int operations) {
        for (int i = 0; i < operations; ++i) add(below(operations_.size()));
        std::vector<program::StepProgram> programs;
        for (std::size_t rank = 0; rank < operations_.size(); ++rank) {
            for (std::uint32_t slot = 0; slot < kSlots; ++slot)
                if (live_[rank][slot]) toggle(rank, slot);
            programs.push_back(hand_program(operations_[rank], kSlots, kEvents));
        }
        return programs;
    }

private:
    std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
    Stream stream() {
        constexpr Stream kStreams[] = {Stream::main, Stream::communication, Stream::gradient_communication,
                                       Stream::send_forward, Stream::receive_forward};
        return kStreams[below(std::size(kStreams))];
    }
    Nanoseconds length() { return Nanoseconds{below(40)}; }

    void toggle(std::size_t rank, std::uint32_t slot) {
        const Bytes bytes{static_cast<std::int64_t>(1 + slot % 5) << 19};
        const OperationKind kind = live_[rank][slot] ? OperationKind::free : OperationKind::allocate;
        operations_[rank].push_back({.kind = kind, .slot = slot, .bytes = bytes});
        live_[rank][slot] = !live_[rank][slot];
    }

    void add(std::size_t rank) {
        std::vector<Operation>& list = operations_[rank];
        const auto event = static_cast<std::uint32_t>(below(kEvents));
        switch (below(12)) {
            case 0:
            case 1:
            case 2: {
                const auto launches = static_cast<std::uint16_t>(1 + below(6));
                list.push_back({.kind = OperationKind::compute, .launches = launches, .duration = length()});
                break;
            }
            case 3:
            case 4: {
                const Stream on = below(2) == 0 ? Stream::communication : Stream::gradient_communication;
                list.push_back({.kind = OperationKind::collective, .stream = on, .duration = length()});
                break;
            }
            case 5: list.push_back({.kind = OperationKind::stream_wait, .stream = stream(), .other = stream()}); break;
            case 6:
                list.push_back({.kind = OperationKind::event_record, .stream = stream(), .slot = event});
                recorded_[rank] |= 1U << event;
                break;
            case 7:
                if ((recorded_[rank] >> event & 1U) != 0)
                    list.push_back({.kind = OperationKind::event_wait, .stream = stream(), .slot = event});
                break;
            case 8:
                if (below(3) == 0) list.push_back({.kind = OperationKind::stream_sync, .stream = stream()});
                if (below(6) == 0) list.push_back({.kind = OperationKind::device_sync});
                break;
            case 9: toggle(rank, static_cast<std::uint32_t>(below(kSlots))); break;
            default: transfer(rank, below(2) == 0);
        }
    }

    void transfer(std::size_t rank, bool forward) {
        if (operations_.size() < 2) return;
        const std::size_t ranks = operations_.size();
        const std::size_t partner = forward ? (rank + 1) % ranks : (rank + ranks - 1) % ranks;
        const TransferKind sent = forward ? TransferKind::send_forward : TransferKind::send_backward;
        const TransferKind received = forward ? TransferKind::receive_forward : TransferKind::receive_backward;
        const Nanoseconds takes = length() + 1ns;
        for (const auto& [who, kind] : {std::pair(rank, sent), std::pair(partner, received)}) {
            std::vector<Operation>& list = operations_[who];
            const Stream on = stream_of(kind);
            if (below(2) == 0) list.push_back({.kind = OperationKind::stream_wait, .stream = on});
            list.push_back({.kind = OperationKind::peer_transfer, .stream = on, .transfer = kind, .duration = takes});
            if (below(2) == 0) list.push_back({.kind = OperationKind::stream_wait, .other = on});
        }
    }

    std::mt19937_64 random_;
    std::vector<std::vector<Operation>> operations_;
    std::vector<std::vector<bool>> live_;
    std::vector<std::uint32_t> recorded_;  ///< bit e: event e
};

types::Node hurried_node(std::int64_t queue_depth) {
    types::Node node = quiet_node();
    node.host.kernel_launch = 4ns;
    node.host.framework_forward = 7ns;
    node.host.event_call = 1ns;
    node.host.synchronize = 5ns;
    node.host.device_allocation_call = 60ns;
    node.host.launch_queue_depth = queue_depth;
    return node;
}

TEST(UnsharedRank, GivesWhatTheGeneralWayGivesOnRandomPrograms) {
    const std::uint64_t seed = tests::property_seed(2026);
    for (std::uint64_t round = 0; round < 400; ++round) {
        const std::size_t ranks = 1 + round % 4;
        const auto programs = RandomRanks(ranks, seed + round).draw(static_cast<int>(60 * ranks));
        std::vector<const program::StepProgram*> pointers;
        for (const program::StepProgram& program : programs) pointers.push_back(&program);
        SCOPED_TRACE(testing::Message() << "round " << round << " of seed " << seed);
        expect_the_same_both_ways(pointers, hurried_node(round % 3 == 0 ? 4 : 1024));
        if (testing::Test::HasFailure()) return;
    }
}

tests::EvenPipeline pipeline_of_four() {
    tests::EvenPipeline pipeline;
    pipeline.stages = 4;
    pipeline.virtual_stages = 2;
    pipeline.microbatches = 12;
    pipeline.layers = 3;
    pipeline.layer.core_attn_elements = 9 << 20;
    pipeline.layer.attn_proj_elements = 5 << 20;
    return pipeline;
}

TEST(UnsharedRank, GivesWhatTheGeneralWayGivesOnAPipeline) {
    for (const bool overlapped : {true, false}) {
        tests::EvenPipeline pipeline = pipeline_of_four();
        pipeline.overlapped_transfers = overlapped;
        const auto ranks = tests::lower_all(pipeline, hurried_node(1024));
        std::vector<const program::StepProgram*> programs;
        for (const program::Lowered& rank : ranks) programs.push_back(&rank.program);
        expect_the_same_both_ways(programs, hurried_node(1024));
    }
}

TEST(UnsharedRank, LeavesWhatSharesTheDeviceToTheGeneralWay) {
    const auto handled = [](const Operation& operation, const SimulationOptions& options = {}) {
        return UnsharedRank::handles(hand_program({operation}, 1), quiet_node(), options);
    };
    const Operation kernel{.kind = OperationKind::compute, .duration = 1us};
    EXPECT_TRUE(handled(kernel));
    EXPECT_FALSE(handled(kernel, tests::traced()));
    EXPECT_FALSE(handled({.kind = OperationKind::compute, .stream = Stream::communication}));
    EXPECT_FALSE(handled({.kind = OperationKind::copy, .stream = Stream::d2h}));
    EXPECT_FALSE(handled({.kind = OperationKind::collective, .stream = Stream::h2d}));
    EXPECT_FALSE(handled({.kind = OperationKind::record_stream, .stream = Stream::d2h}));
    EXPECT_FALSE(handled({.kind = OperationKind::pinned_acquire}));
    EXPECT_FALSE(handled({.kind = OperationKind::stream_wait, .other = Stream::d2h}));
}

TEST(UnsharedRank, LeavesADeviceThatRunsFullToTheGeneralWay) {
    // Two streams that keep a segment each: with room for one, each gives way to the other (see
    // Simulator.GivesTheCacheBackWhenTheDeviceIsFull), for which the host waits for the device.
    const auto take = [](std::uint32_t slot, Stream stream) {
        return Operation{.kind = OperationKind::allocate, .stream = stream, .slot = slot, .bytes = 48_MiB};
    };
    const auto give = [](std::uint32_t slot) {
        return Operation{.kind = OperationKind::free, .slot = slot, .bytes = 48_MiB};
    };
    const auto program = hand_program({take(0, Stream::main), give(0), take(1, Stream::communication), give(1)}, 2);
    ASSERT_TRUE(UnsharedRank::handles(program, quiet_node(), {}));
    const Prediction limited = simulate({&program}, quiet_node(), tests::limited_to(64_MiB));
    ASSERT_FALSE(limited.out_of_memory);
    EXPECT_EQ(limited.ranks[0].steady.cache_flushes, 2);
}

TEST(UnsharedRank, CountsTheHostsTimeOnlyWhereNoStreamWorks) {
    // Kernels issued at 10 and 40 us, the collective at 20 us for 15 us: from 15 to 20 and from 35 to 40 us nothing
    // works, beside the first 10.
    types::Node node = quiet_node();
    node.host.kernel_launch = 10us;
    const auto program =
        hand_program({{.kind = OperationKind::compute, .phase = layers::Phase::forward, .duration = 5us},
                      {.kind = OperationKind::collective, .stream = Stream::communication, .duration = 15us},
                      {.kind = OperationKind::collective, .stream = Stream::gradient_communication},
                      {.kind = OperationKind::compute, .phase = layers::Phase::forward, .duration = 5us}});
    EXPECT_EQ(simulate({&program}, node).ranks[0].steady.host_bound, 20us);
}

}  // namespace
}  // namespace stowage::simulator
