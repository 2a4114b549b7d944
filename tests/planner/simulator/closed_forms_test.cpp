// Whole steps against what can be written down: schedules, memory in flight, copies behind and in front of compute.
// A synthetic layer has three kernels in each direction; the host issues in no time and nothing slows anything.

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "planner/simulator/simulator.hpp"
#include "tests/support/even_pipeline.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/simulation_options.hpp"

namespace stowage::simulator {
namespace {

using namespace std::chrono_literals;
using tests::EvenPipeline;
using tests::quiet_node;
using types::Nanoseconds;
using types::literals::operator""_MiB;

const SimulationOptions kPlain = tests::without_interference();

// ------------------------------------------------------------------------------------------------------------
// schedules

/// The copy times of one H200 (scenarios/hardware/h200-8gpu.yaml): size in KiB, out and back in nanoseconds.
struct TablePoint {
    std::int64_t kib;
    Nanoseconds out, back;
};
const std::vector<TablePoint> kTable{
    {64, 2'700ns, 3'600ns},
    {256, 6'200ns, 6'900ns},
    {1024, 20'900ns, 21'400ns},
    {4096, 77'600ns, 78'600ns},
    {16384, 305'000ns, 306'000ns},
    {65536, 1'217'000ns, 1'214'000ns},
    {1048576, 19'411'000ns, 19'418'000ns},
};

types::Node h200_copies() {
    types::Node node = quiet_node();
    std::vector<types::CopyPoint> out, back;
    for (const TablePoint& point : kTable) {
        out.push_back({types::Bytes{point.kib << 10}, point.out});
        back.push_back({types::Bytes{point.kib << 10}, point.back});
    }
    node.copy.device_to_host = types::CopyCurve(out);
    node.copy.host_to_device = types::CopyCurve(back);
    return node;
}

TEST(ClosedForms, OneStageTakesItsMicrobatchesOneAfterTheOther) {
    for (const std::int64_t microbatches : {1, 2, 5, 16}) {
        EvenPipeline pipeline;
        pipeline.microbatches = microbatches;
        pipeline.layers = 3;
        pipeline.forward_kernel = 700ns;
        pipeline.backward_kernel = 1300ns;
        const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
        EXPECT_EQ(prediction.step_time, microbatches * (pipeline.forward() + pipeline.backward()));
    }
}

TEST(ClosedForms, EvenStagesWaitForPMinusOneMicrobatches) {
    // Non-interleaved 1F1B: m (f + b) of work, and a bubble of (p - 1) (f + b).
    for (const std::int64_t stages : {2, 3, 4, 8}) {
        for (const std::int64_t microbatches : {1, 2, 4, 7, 16}) {
            EvenPipeline pipeline;
            pipeline.stages = stages;
            pipeline.microbatches = microbatches;
            pipeline.forward_kernel = 900ns;
            pipeline.backward_kernel = 1700ns;
            const Nanoseconds both = pipeline.forward() + pipeline.backward();
            const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
            EXPECT_EQ(prediction.step_time, (microbatches + stages - 1) * both) << stages << " x " << microbatches;
            for (const RankPrediction& rank : prediction.ranks)
                EXPECT_EQ(rank.steady.busy[program::index(program::Stream::main)], microbatches * both);
        }
    }
}

TEST(ClosedForms, VirtualStagesDivideTheBubble) {
    // Interleaved 1F1B with equal chunks: m (f + b) of work, and a bubble of (p - 1) (f + b) / v, where f and b are one
    // microbatch on all virtual stages of a rank.
    for (const std::int64_t stages : {2, 3, 4}) {
        for (const std::int64_t depth : {2, 3, 4}) {
            for (const std::int64_t groups : {1, 2, 5}) {
                EvenPipeline pipeline;
                pipeline.stages = stages;
                pipeline.virtual_stages = depth;
                pipeline.microbatches = groups * stages;
                pipeline.forward_kernel = 900ns;
                pipeline.backward_kernel = 1700ns;
                const Nanoseconds both = pipeline.forward() + pipeline.backward();
                const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
                EXPECT_EQ(prediction.step_time, pipeline.microbatches * both + (stages - 1) * both / depth)
                    << stages << " x " << depth << " x " << groups;
            }
        }
    }
}

TEST(ClosedForms, ExchangesOfAPairCostInterleavingNothingWhenTransfersTakeNoTime) {
    // Without overlap a forward and a backward are followed by one exchange of both, so a neighbour gets the forward's
    // output one backward later: the bubble is not smaller than with posted transfers.
    EvenPipeline pipeline;
    pipeline.stages = 2;
    pipeline.virtual_stages = 2;
    pipeline.microbatches = 8;
    const Nanoseconds posted = tests::run(pipeline, quiet_node(), kPlain).step_time;
    pipeline.overlapped_transfers = false;
    EXPECT_GE(tests::run(pipeline, quiet_node(), kPlain).step_time, posted);
}

TEST(ClosedForms, RecomputationRunsEveryForwardTwice) {
    for (const std::int64_t stages : {1, 2, 4}) {
        for (const std::int64_t microbatches : {1, 4, 9}) {
            EvenPipeline pipeline;
            pipeline.stages = stages;
            pipeline.microbatches = microbatches;
            pipeline.layers = 3;
            pipeline.forward_kernel = 900ns;
            pipeline.backward_kernel = 1700ns;
            pipeline.recomputed = true;
            const Nanoseconds both = 2 * pipeline.forward() + pipeline.backward();
            EXPECT_EQ(tests::run(pipeline, quiet_node(), kPlain).step_time, (microbatches + stages - 1) * both);
        }
    }
}

TEST(ClosedForms, RecomputedLayersHoldTheirInputsAndOneLayersTensors) {
    // Per microbatch in flight one input a layer; while one layer runs backward, its two saved tensors. Tensors have
    // segments of exactly their size, and the boundary is a hundredth of a saved tensor.
    constexpr std::int64_t kElements = 100 << 20;
    for (const std::int64_t stages : {1, 2, 4}) {
        EvenPipeline pipeline;
        pipeline.stages = stages;
        pipeline.microbatches = 5;
        pipeline.layers = 4;
        pipeline.layer.core_attn_elements = kElements;
        pipeline.layer.attn_proj_elements = kElements;
        pipeline.layer.boundary_elements = 1 << 20;
        pipeline.recomputed = true;
        const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
        for (std::int64_t rank = 0; rank < stages; ++rank) {
            const StageResult& steady = prediction.ranks[static_cast<std::size_t>(rank)].steady;
            const std::int64_t above = (steady.peak_allocated - steady.allocated_after).count - 2 * 2 * kElements;
            const std::int64_t inputs = std::min<std::int64_t>(stages - rank, 5) * pipeline.layers * (2 << 20);
            EXPECT_GE(above, inputs);
            EXPECT_LE(above, inputs + 8 * (2 << 20));  // gradients, the output made again, a slack of whole blocks
        }
    }
}

TEST(ClosedForms, InterleavedRanksThatAskTheirDevicesForEventsDoNotWaitForEachOther) {
    // The allocator asks about the copies' events at every allocation, so a rank needs its device's state while a
    // transfer of it waits for a partner that is in the same position. What is copied is what the policy counted.
    for (const std::int64_t stages : {2, 3, 4}) {
        for (const std::int64_t depth : {2, 3}) {
            for (const bool overlapped : {true, false}) {
                EvenPipeline pipeline;
                pipeline.stages = stages;
                pipeline.virtual_stages = depth;
                pipeline.microbatches = 3 * stages;
                pipeline.layers = 3;
                pipeline.overlapped_transfers = overlapped;
                pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
                const auto ranks = tests::lower_all(pipeline, h200_copies());
                const Prediction prediction = tests::run(ranks, h200_copies());
                for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
                    types::Bytes counted;
                    for (const types::Bytes bytes : ranks[rank].counts.bytes) counted += bytes;
                    EXPECT_EQ(prediction.ranks[rank].steady.copied[0], counted);
                    EXPECT_EQ(prediction.ranks[rank].steady.copied[1], counted);
                }
            }
        }
    }
}

TEST(ClosedForms, ThreadsChangeNothing) {
    for (const std::int64_t stages : {1, 2, 3, 5, 6}) {
        EvenPipeline pipeline;
        pipeline.stages = stages;
        pipeline.virtual_stages = stages > 1 ? 2 : 1;
        pipeline.microbatches = 2 * stages;
        pipeline.layers = 2;
        pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
        const auto ranks = tests::lower_all(pipeline, h200_copies());
        SimulationOptions several;
        several.threads = 3;
        const Prediction alone = tests::run(ranks, h200_copies());
        const Prediction together = tests::run(ranks, h200_copies(), several);
        EXPECT_EQ(alone.step_time, together.step_time);
        EXPECT_EQ(alone.record_time, together.record_time);
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            EXPECT_EQ(alone.ranks[rank].steady.peak_reserved, together.ranks[rank].steady.peak_reserved);
            EXPECT_EQ(alone.ranks[rank].steady.exposed_copy, together.ranks[rank].steady.exposed_copy);
            EXPECT_EQ(alone.ranks[rank].steady.busy, together.ranks[rank].steady.busy);
        }
    }
}

TEST(ClosedForms, RanksHoldTheChunksOfEachVirtualStageBeforeTheirFirstBackward) {
    // Two tensors a layer and chunk, each in a segment of its own size; with p = 2, v = 2, groups of 2: rank 0 holds
    // its warm-up of 4 chunks and one more, rank 1 three.
    constexpr std::int64_t kElements = 6 << 20;
    for (const std::int64_t depth : {2, 3}) {
        EvenPipeline pipeline;
        pipeline.stages = 2;
        pipeline.virtual_stages = depth;
        pipeline.microbatches = 8;
        pipeline.layer.core_attn_elements = kElements;
        pipeline.layer.attn_proj_elements = kElements;
        pipeline.layer.boundary_elements = 256;
        const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
        const std::int64_t held = 2 * 2 * kElements;
        for (std::int64_t rank = 0; rank < 2; ++rank) {
            const StageResult& steady = prediction.ranks[static_cast<std::size_t>(rank)].steady;
            const std::int64_t above = (steady.peak_allocated - steady.allocated_after).count;
            EXPECT_EQ(above / held, 2 * (2 - rank - 1) + (depth - 1) * 2 + 1);
            EXPECT_LT(above % held, 1 << 20);
        }
    }
}

TEST(ClosedForms, RanksHoldTheMicrobatchesFromThemToTheEndOfThePipeline) {
    // A microbatch in flight holds two tensors a layer. They are multiples of 2 MiB above 10 MiB, so each has a segment
    // of exactly its size; everything else is far smaller.
    constexpr std::int64_t kElements = 6 << 20;
    for (const std::int64_t stages : {1, 2, 4}) {
        for (const std::int64_t microbatches : {1, 2, 3, 4, 9}) {
            EvenPipeline pipeline;
            pipeline.stages = stages;
            pipeline.microbatches = microbatches;
            pipeline.layers = 2;
            pipeline.layer.core_attn_elements = kElements;
            pipeline.layer.attn_proj_elements = kElements;
            pipeline.layer.boundary_elements = 256;
            const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
            const std::int64_t held = 2 * pipeline.layers * 2 * kElements;
            for (std::int64_t rank = 0; rank < stages; ++rank) {
                const StageResult& steady = prediction.ranks[static_cast<std::size_t>(rank)].steady;
                const std::int64_t above = (steady.peak_allocated - steady.allocated_after).count;
                EXPECT_EQ(above / held, std::min(stages - rank, microbatches));
                EXPECT_LT(above % held, 1 << 20);
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// copies

/// Durations of the copies of a traced steady step, by direction.
std::map<program::Direction, std::vector<Nanoseconds>> copies_of(const program::StepProgram& program,
                                                                 const Prediction& prediction) {
    std::map<program::Direction, std::vector<Nanoseconds>> copies;
    for (const program::TimelineEntry& entry : prediction.ranks[0].timeline.entries) {
        const program::Instance& instance = program.instances(program::RunStage::steady)[entry.instance];
        const program::Operation& operation = program.bodies[program::index(instance.body)].operations[entry.operation];
        if (operation.kind == program::OperationKind::copy)
            copies[operation.direction].push_back(entry.end - entry.start);
    }
    return copies;
}

/// One stage, one microbatch, two layers; core_attn of the first leaves, that of the last group stays.
EvenPipeline one_group_leaves(std::int64_t bytes) {
    EvenPipeline pipeline;
    pipeline.layers = 2;
    pipeline.layer.core_attn_elements = bytes / 2;
    pipeline.choice.modules = {types::Module::core_attn};
    pipeline.choice.min_offloaded_tensor_size = 0;
    return pipeline;
}

TEST(ClosedForms, CopiesTakeTheTimesOfTheTableAtItsPoints) {
    const types::Node node = h200_copies();
    for (const TablePoint& point : kTable) {
        EvenPipeline pipeline = one_group_leaves(point.kib << 10);
        const auto ranks = tests::lower_all(pipeline, node);
        const auto copies = copies_of(ranks[0].program, tests::run(ranks, node, tests::traced()));
        EXPECT_EQ(copies.at(program::Direction::device_to_host), std::vector<Nanoseconds>{point.out});
        EXPECT_EQ(copies.at(program::Direction::host_to_device), std::vector<Nanoseconds>{point.back});
    }
}

TEST(ClosedForms, CopiesLieBetweenThePointsInBetween) {
    const types::Node node = h200_copies();
    for (std::size_t i = 0; i + 1 < kTable.size(); ++i) {
        for (const std::int64_t eighths : {1, 4, 7}) {
            const std::int64_t kib = kTable[i].kib + (kTable[i + 1].kib - kTable[i].kib) * eighths / 8;
            EvenPipeline pipeline = one_group_leaves(kib << 10);
            const auto ranks = tests::lower_all(pipeline, node);
            const auto copies = copies_of(ranks[0].program, tests::run(ranks, node, tests::traced()));
            const Nanoseconds out = copies.at(program::Direction::device_to_host).at(0);
            const Nanoseconds back = copies.at(program::Direction::host_to_device).at(0);
            EXPECT_LT(kTable[i].out, out);
            EXPECT_LT(out, kTable[i + 1].out);
            EXPECT_LT(kTable[i].back, back);
            EXPECT_LT(back, kTable[i + 1].back);
        }
    }
}

TEST(ClosedForms, CopiesThatFitBehindComputeCostNothing) {
    // 2 MiB a copy at 1 us a MiB is 2 us; every kernel is 10 us.
    EvenPipeline pipeline;
    pipeline.layers = 4;
    pipeline.forward_kernel = 10us;
    pipeline.backward_kernel = 10us;
    for (const std::int64_t stages : {1, 2, 4}) {
        for (const std::int64_t microbatches : {1, 4, 6}) {
            pipeline.stages = stages;
            pipeline.microbatches = microbatches;
            pipeline.choice.modules = {};
            const Prediction without = tests::run(pipeline, quiet_node(), kPlain);
            pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
            const Prediction with = tests::run(pipeline, quiet_node(), kPlain);
            EXPECT_GT(with.ranks[0].steady.copied[0], types::Bytes{0});
            EXPECT_EQ(with.step_time, without.step_time) << stages << " x " << microbatches;
            EXPECT_LT(with.ranks[0].steady.peak_allocated, without.ranks[0].steady.peak_allocated);
            for (const RankPrediction& rank : with.ranks) EXPECT_EQ(rank.steady.exposed_copy, 0ns);
        }
    }
}

TEST(ClosedForms, TwoLayersWaitForTheReloadThatTheLastLayersBackwardStarts) {
    // One microbatch, kernels of k. Forward: core, proj, add of layer 0 (its core_attn leaves after k), the same of
    // layer 1 (kept: the last group). Backward: proj, core, add of layer 1; its core_attn ends at 8 k and starts the
    // reload of layer 0, if the copy out (from k to k + c) is done. Then add (9 k), proj of layer 0 (10 k), and core
    // waits for the reload. Two kernels are left after it.
    constexpr Nanoseconds kKernel{1000};
    struct Row {
        Nanoseconds copy;  ///< one tensor, either direction
        Nanoseconds waits_until;
    };
    for (const Row row : {Row{1'000ns, 10'000ns},      // back at 9 k: no wait
                          Row{2'000ns, 10'000ns},      // back at 10 k: just in time
                          Row{5'000ns, 13'000ns},      // out at 6 k, back from 8 k to 13 k
                          Row{7'000ns, 15'000ns},      // out at 8 k, back from 8 k to 15 k
                          Row{20'000ns, 41'000ns}}) {  // out at 21 k, back from there to 41 k
        EvenPipeline pipeline = one_group_leaves(2 << 20);
        pipeline.forward_kernel = kKernel;
        pipeline.backward_kernel = kKernel;
        const Prediction prediction = tests::run(pipeline, quiet_node(row.copy / 2), kPlain);
        EXPECT_EQ(prediction.step_time, row.waits_until + 2 * kKernel);
        EXPECT_EQ(prediction.ranks[0].steady.exposed_copy, row.waits_until - 10 * kKernel);
        EXPECT_EQ(prediction.ranks[0].steady.copied[0], 2_MiB);
        EXPECT_EQ(prediction.ranks[0].steady.copied[1], 2_MiB);
    }
}

TEST(ClosedForms, AStepBoundByItsLinkTakesTheTimeOfItsCopies) {
    // Three layers, core_attn: two leave, one after the other from k on: both out at k + 2 c. The backward of layer 2
    // starts the reload of layer 1 (k + 3 c); its core kernel ends k later and starts that of layer 0 (2 k + 4 c); two
    // kernels (core and add of layer 0) are left.
    constexpr Nanoseconds kKernel{1000}, kCopy{100'000};
    EvenPipeline pipeline = one_group_leaves(2 << 20);
    pipeline.layers = 3;
    const Prediction prediction = tests::run(pipeline, quiet_node(kCopy / 2), kPlain);
    EXPECT_EQ(prediction.step_time, 4 * kCopy + 4 * kKernel);
    EXPECT_EQ(prediction.ranks[0].steady.copy_alone[0], 2 * kCopy);
    EXPECT_GE(prediction.step_time, prediction.ranks[0].steady.copy_alone[0]);
}

TEST(ClosedForms, NoStepIsShorterThanItsCopies) {
    for (const std::int64_t microbatches : {1, 3, 8}) {
        for (const Nanoseconds per_mib : {500ns, 5'000ns, 50'000ns}) {
            EvenPipeline pipeline;
            pipeline.layers = 3;
            pipeline.microbatches = microbatches;
            pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
            const StageResult steady = tests::run(pipeline, quiet_node(per_mib), kPlain).ranks[0].steady;
            // Three layers of two groups of 2 MiB, the last of each module stays.
            EXPECT_EQ(steady.copied[0], types::Bytes{microbatches * (4 << 21)});
            EXPECT_EQ(steady.copy_alone[0], microbatches * 8 * per_mib);
            EXPECT_GE(steady.duration, microbatches * 8 * per_mib);
        }
    }
}

TEST(ClosedForms, TheFirstIterationMovesEverythingAndReadsItInline) {
    // Six groups out; on the way back every group is read on the main stream when it is needed: six copies of 2 us that
    // nothing hides.
    EvenPipeline pipeline;
    pipeline.layers = 3;
    pipeline.forward_kernel = 10us;
    pipeline.backward_kernel = 10us;
    pipeline.choice.modules = {types::Module::core_attn, types::Module::attn_proj};
    const Prediction prediction = tests::run(pipeline, quiet_node(), kPlain);
    const StageResult& record = prediction.ranks[0].record;
    EXPECT_EQ(record.copied[0], 12_MiB);
    EXPECT_EQ(record.copied[1], 12_MiB);
    EXPECT_EQ(record.exposed_copy, 12us);
    EXPECT_EQ(prediction.record_time, pipeline.forward() + pipeline.backward() + 12us);
}

}  // namespace
}  // namespace stowage::simulator
