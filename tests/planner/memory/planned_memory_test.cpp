#include "planner/memory/planned_memory.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/hand_program.hpp"
#include "tests/support/lower_stage.hpp"
#include "tests/support/overlap_checker.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::memory {
namespace {

using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::Stream;
using tests::hand_program;
using tests::synthetic_stage;
using tests::SyntheticLayer;
using types::Module;
using types::literals::operator""_MiB;

constexpr std::int64_t kMiB = 1 << 20;

Operation allocate(std::uint32_t slot, Bytes bytes, Stream stream = Stream::main, program::Scope scope = 0) {
    return {.kind = OperationKind::allocate, .stream = stream, .scope = scope, .slot = slot, .bytes = bytes};
}
Operation free(std::uint32_t slot, Bytes bytes, program::Scope scope = 0) {
    return {.kind = OperationKind::free, .scope = scope, .slot = slot, .bytes = bytes};
}
Operation kernel(Stream stream = Stream::main) { return {.kind = OperationKind::compute, .stream = stream}; }
Operation copy(Stream stream) { return {.kind = OperationKind::copy, .stream = stream}; }
Operation wait(Stream stream, Stream other) {
    return {.kind = OperationKind::stream_wait, .stream = stream, .other = other};
}
Operation also_used_on(Stream stream, std::uint32_t slot) {
    return {.kind = OperationKind::record_stream, .stream = stream, .slot = slot};
}
Operation record(Stream stream, std::uint32_t event) {
    return {.kind = OperationKind::event_record, .stream = stream, .slot = event};
}
Operation await(Stream stream, std::uint32_t event) {
    return {.kind = OperationKind::event_wait, .stream = stream, .slot = event};
}

/// Offsets of the steady step from its own start.
std::vector<std::int64_t> steady_offsets(const PlannedMemory& planned) {
    std::vector<std::int64_t> offsets;
    for (const std::int64_t offset : planned.offsets[static_cast<std::size_t>(RunStage::steady)])
        offsets.push_back(offset - planned.step.begin);
    return offsets;
}

void expect_sound(const StepProgram& program, const PlannedMemory& planned, std::int64_t* shared = nullptr) {
    for (const RunStage stage : {RunStage::setup, RunStage::capture, RunStage::steady}) {
        const auto& offsets = planned.offsets[static_cast<std::size_t>(stage)];
        const tests::Overlaps found = tests::overlaps(program, stage, offsets);
        EXPECT_EQ(found.problems, std::vector<std::string>{});
        if (shared != nullptr) *shared += found.shared;
        for (const std::int64_t offset : offsets) EXPECT_EQ(offset % PlannedMemory::kAlignment.count, 0);
    }
    EXPECT_GE(planned.step.size, planned.step.live_peak);
}

// ---------------------------------------------------------------------------------------------------------- by hand

TEST(PlannedMemory, ReusesAStreamsOwnMemoryAtOnce) {
    // a and b live together, c (3 MiB) takes a's place of 4 MiB, d (1 MiB) the MiB behind it: 4 + 2 MiB.
    const StepProgram program =
        hand_program({allocate(0, 4_MiB), allocate(1, 2_MiB), kernel(), free(0, 4_MiB), allocate(2, 3_MiB),
                      allocate(3, 1_MiB), kernel(), free(1, 2_MiB), free(2, 3_MiB), free(3, 1_MiB)},
                     4);
    const PlannedMemory planned = plan_memory(program);
    EXPECT_EQ(steady_offsets(planned), (std::vector<std::int64_t>{0, 4 * kMiB, 0, 3 * kMiB}));
    EXPECT_EQ(planned.step.size, 6 * kMiB);
    EXPECT_EQ(planned.step.live_peak, 6 * kMiB);
}

TEST(PlannedMemory, DoesNotReuseWhatACopyMayStillRead) {
    const std::vector<Operation> left{allocate(0, 4_MiB),
                                      kernel(),
                                      wait(Stream::d2h, Stream::main),
                                      copy(Stream::d2h),
                                      record(Stream::d2h, 0),
                                      also_used_on(Stream::d2h, 0),
                                      free(0, 4_MiB)};
    const std::vector<Operation> next{allocate(1, 4_MiB), kernel(), free(1, 4_MiB)};
    std::vector<Operation> without = left;
    without.insert(without.end(), next.begin(), next.end());
    std::vector<Operation> with = left;
    with.push_back(await(Stream::main, 0));
    with.insert(with.end(), next.begin(), next.end());

    const PlannedMemory apart = plan_memory(hand_program(without, 2, 1));
    EXPECT_EQ(steady_offsets(apart), (std::vector<std::int64_t>{0, 4 * kMiB}));
    EXPECT_EQ(apart.step.live_peak, 8 * kMiB);  // nothing could have used the first one's bytes
    EXPECT_EQ(apart.steady_peak, 4_MiB);        // though the host had freed them
    const PlannedMemory together = plan_memory(hand_program(with, 2, 1));
    EXPECT_EQ(steady_offsets(together), (std::vector<std::int64_t>{0, 0}));
    EXPECT_EQ(together.step.size, 4 * kMiB);
}

TEST(PlannedMemory, ReloadsOnTheMainStreamsBytesOnlyBehindIt) {
    const auto program = [](bool waits) {
        std::vector<Operation> operations{allocate(0, 4_MiB), kernel(), free(0, 4_MiB)};
        if (waits) operations.push_back(wait(Stream::h2d, Stream::main));
        const std::vector<Operation> reload{allocate(1, 4_MiB, Stream::h2d), copy(Stream::h2d),
                                            wait(Stream::main, Stream::h2d), kernel(), free(1, 4_MiB)};
        operations.insert(operations.end(), reload.begin(), reload.end());
        return hand_program(operations, 2);
    };
    EXPECT_EQ(plan_memory(program(false)).step.size, 8 * kMiB);
    EXPECT_EQ(plan_memory(program(true)).step.size, 4 * kMiB);
}

TEST(PlannedMemory, HoldsAReloadedBufferUntilTheMainStreamHasReadIt) {
    // Freed by main; the next reload has not waited for main's kernel that reads it.
    const std::vector<Operation> operations{allocate(0, 2_MiB, Stream::h2d),
                                            copy(Stream::h2d),
                                            wait(Stream::main, Stream::h2d),
                                            kernel(),
                                            free(0, 2_MiB),
                                            allocate(1, 2_MiB, Stream::h2d),
                                            copy(Stream::h2d),
                                            free(1, 2_MiB)};
    EXPECT_EQ(plan_memory(hand_program(operations, 2)).step.size, 4 * kMiB);
}

TEST(PlannedMemory, FreesAReloadedBufferWithItsOwnCopyNotWithLaterOnes) {
    // The second reload is under way when the first buffer goes: main may take the first one's bytes all the same.
    const std::vector<Operation> operations{allocate(0, 2_MiB, Stream::h2d),
                                            copy(Stream::h2d),
                                            record(Stream::h2d, 0),
                                            allocate(1, 4_MiB, Stream::h2d),
                                            copy(Stream::h2d),
                                            await(Stream::main, 0),
                                            kernel(),
                                            free(0, 2_MiB),
                                            allocate(2, 2_MiB),
                                            kernel(),
                                            free(2, 2_MiB),
                                            free(1, 4_MiB)};
    const PlannedMemory planned = plan_memory(hand_program(operations, 3, 1));
    EXPECT_EQ(steady_offsets(planned), (std::vector<std::int64_t>{0, 2 * kMiB, 0}));
}

TEST(PlannedMemory, FallsBackOnSizesWhereTheOrderOfAllocationsFragments) {
    // One after another a 1, b 2, c 1, d 2 MiB; b and d go, then e needs 4: as they come it lies behind all four, at
    // 6, 10 MiB in all. Live at once are a, c, e: 6, and 6 before. By falling size e lies at 0 with b and d on its
    // bytes, a and c behind: 6.
    const std::vector<Operation> operations{
        allocate(0, 1_MiB), allocate(1, 2_MiB), allocate(2, 1_MiB), allocate(3, 2_MiB), kernel(),       free(1, 2_MiB),
        free(3, 2_MiB),     allocate(4, 4_MiB), kernel(),           free(0, 1_MiB),     free(2, 1_MiB), free(4, 4_MiB)};
    StepProgram program = hand_program(operations, 5);
    const PlannedMemory planned = plan_memory(program);
    EXPECT_EQ(planned.step.live_peak, 6 * kMiB);
    EXPECT_EQ(planned.step.size, 6 * kMiB);
    // A second microbatch on one stage finds its tensors at the same addresses.
    auto& steady = program.sequence[static_cast<std::size_t>(RunStage::steady)];
    steady.push_back(steady.front());
    steady.back().microbatch = 1;
    const PlannedMemory twice = plan_memory(program);
    EXPECT_EQ(twice.step.size, 6 * kMiB);
    const std::vector<std::int64_t> offsets = steady_offsets(twice);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(offsets[i], offsets[i + 5]);
}

TEST(PlannedMemory, KeepsWhatOutlivesAStepApart) {
    // Slot 0 of the persistent frame goes at the start of each step and is made again at its end.
    StepProgram program = hand_program(
        {free(0, 2_MiB, 1), allocate(0, 4_MiB), kernel(), free(0, 4_MiB), allocate(0, 2_MiB, Stream::main, 1)}, 1, 0,
        1);
    const PlannedMemory planned = plan_memory(program);
    EXPECT_EQ(planned.states.size, 2 * kMiB);
    EXPECT_EQ(planned.offset(RunStage::steady, 0), 2 * kMiB);
    EXPECT_EQ(planned.offset(RunStage::steady, 1), 0);
    EXPECT_EQ(planned.offset(RunStage::record, 1), 0);
    EXPECT_EQ(planned.size(), 6_MiB);
    EXPECT_EQ(planned.steady_peak, 4_MiB);  // the 2 MiB are gone while the 4 are there
}

TEST(PlannedMemory, RoundsEveryAddressToTheAlignment) {
    const PlannedMemory planned =
        plan_memory(hand_program({allocate(0, Bytes{1}), allocate(1, Bytes{0}), allocate(2, Bytes{513}), kernel(),
                                  free(0, Bytes{1}), free(1, Bytes{0}), free(2, Bytes{513})},
                                 3));
    EXPECT_EQ(planned.offset(RunStage::steady, 2), 512);
    EXPECT_EQ(planned.size(), Bytes{512 + 1024});
}

// ------------------------------------------------------------------------------------------------- lowered programs

TEST(PlannedMemory, GivesEveryMicrobatchTheSameAddresses) {
    SyntheticLayer layer;
    layer.core_attn_elements = 3 << 19;
    const auto lowered = tests::lower_stage(synthetic_stage(0, 1, 4, layer), 3, {});
    const PlannedMemory planned = plan_memory(lowered.program);
    std::map<std::int32_t, std::vector<std::int64_t>> by_microbatch;
    std::size_t number = 0;
    for (const auto& issued : tests::expand(lowered.program, RunStage::steady))
        if (issued.operation.kind == OperationKind::allocate)
            by_microbatch[issued.microbatch].push_back(planned.offset(RunStage::steady, number++));
    ASSERT_GT(by_microbatch[0].size(), 12U);
    EXPECT_EQ(by_microbatch[0], by_microbatch[1]);
    EXPECT_EQ(by_microbatch[0], by_microbatch[2]);
}

TEST(PlannedMemory, HoldsNoMoreThanLivesWithoutOffloading) {
    const auto lowered = tests::lower_stage(synthetic_stage(0, 1, 6), 2, {});
    const PlannedMemory planned = plan_memory(lowered.program);
    EXPECT_EQ(planned.step.size, planned.step.live_peak);
    // States: 4 MiB from set-up, 8 MiB from the first optimizer step.
    EXPECT_EQ(planned.states.size, 12 * kMiB);
    EXPECT_EQ(planned.offset(RunStage::record, planned.offsets[1].size() - 2), 4 * kMiB);
}

TEST(PlannedMemory, IsTheSameEveryTime) {
    types::OffloadChoice choice;
    choice.modules = {Module::core_attn, Module::attn_proj};
    const auto lowered = tests::lower_stage(synthetic_stage(0, 2, 4), 4, choice);
    EXPECT_EQ(plan_memory(lowered.program), plan_memory(lowered.program));
}

types::OffloadChoice stowage_choice(std::size_t layers, std::int64_t reload_ahead, std::int64_t join_after) {
    types::OffloadChoice choice;
    choice.modules = {Module::core_attn, Module::attn_proj};
    choice.free = types::FreeOffload{std::vector(layers, choice.modules), reload_ahead, join_after};
    return choice;
}

TEST(PlannedMemory, IsSmallerByWhatLeaves) {
    // Eight layers of two groups, 2 MiB each; the first six leave, 24 MiB. Nothing left: all 32 MiB are there when the
    // backward begins, and 2 MiB each for the head's input, which it saves, and the gradient of it: 36 MiB. Left: the
    // last two layers' 8 MiB, the input and the gradient, 12 MiB; each later group of the backward is replaced by a
    // reload on its own bytes.
    const auto stage = synthetic_stage(0, 1, 8);
    const PlannedMemory without = plan_memory(tests::lower_stage(stage, 2, {}).program);
    const auto lowered = tests::lower_stage(stage, 2, stowage_choice(6, 2, 1));
    const PlannedMemory with = plan_memory(lowered.program);
    EXPECT_EQ(without.step.size, 36 * kMiB);
    EXPECT_EQ(with.step.size, 12 * kMiB);
    EXPECT_EQ(with.step.size, with.step.live_peak);
    expect_sound(lowered.program, with);
}

SyntheticLayer random_layer(std::mt19937_64& random) {
    SyntheticLayer layer;
    layer.core_attn_elements = static_cast<std::int64_t>(1 + random() % 5) << 19;
    layer.attn_proj_elements = static_cast<std::int64_t>(1 + random() % 5) << 19;
    layer.boundary_elements = static_cast<std::int64_t>(1 + random() % 3) << 19;
    layer.shared = random() % 3 == 0;
    layer.gathered = random() % 3 == 0;
    layer.norm = random() % 3 == 0;
    layer.expert_elements = random() % 3 == 0 ? 1 << 20 : 0;
    return layer;
}

types::OffloadChoice random_choice(std::mt19937_64& random) {
    types::OffloadChoice choice;
    for (const Module module : {Module::core_attn, Module::attn_proj, Module::expert_fc1})
        if (random() % 2 == 0) choice.modules.insert(module);
    choice.min_offloaded_tensor_size = 1;
    choice.fraction = static_cast<double>(random() % 4) / 3;
    if (random() % 2 == 0) choice.max_inflight_offloads = static_cast<std::int64_t>(random() % 3);
    if (random() % 2 == 0) {
        choice.free = types::FreeOffload{
            {}, static_cast<std::int64_t>(1 + random() % 3), static_cast<std::int64_t>(random() % 3)};
        for (int layer = 0; layer < 18; ++layer)
            choice.free->by_layer.push_back(random() % 3 == 0 ? types::ModuleSet{} : choice.modules);
    }
    return choice;
}

TEST(PlannedMemory, NeverLetsTwoBuffersInUseShareBytesInAnyProgram) {
    std::mt19937_64 random(tests::property_seed(20261130));
    std::int64_t shared = 0;
    for (int run = 0; run < 100; ++run) {
        const auto stages = static_cast<std::int64_t>(1 + random() % 3);
        const std::int64_t virtual_stages = stages > 1 && random() % 3 == 0 ? 2 : 1;
        auto stage = synthetic_stage(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(stages)), stages,
                                     static_cast<std::int64_t>(1 + random() % 3), random_layer(random), virtual_stages);
        if (random() % 2 == 0) {
            types::CudaGraph graph;
            graph.cuda_graph_impl = std::vector{types::CudaGraphImpl::transformer_engine, types::CudaGraphImpl::local,
                                                types::CudaGraphImpl::full_iteration}[random() % 3];
            if (random() % 2 == 0) graph.cuda_graph_modules = {types::CudaGraphModule::attn};
            tests::use_graphs(stage, graph);
        }
        const auto lowered =
            tests::lower_stage(stage, stages * static_cast<std::int64_t>(1 + random() % 2), random_choice(random));
        if (lowered.chunk_mismatch) continue;
        SCOPED_TRACE(run);
        expect_sound(lowered.program, plan_memory(lowered.program), &shared);
    }
    EXPECT_GT(shared, 1000);
}

/// Operations in any order that a program could have them in: slots live or not, events recorded or not.
StepProgram random_program(std::mt19937_64& random) {
    const std::vector<Stream> streams{Stream::main, Stream::d2h, Stream::h2d, Stream::communication};
    const auto stream = [&] { return streams[random() % streams.size()]; };
    std::vector<Operation> operations;
    std::map<std::uint32_t, Bytes> live;
    for (int i = 0; i < 400; ++i) {
        const auto slot = static_cast<std::uint32_t>(random() % 24);
        const auto found = live.find(slot);
        switch (random() % 8) {
            case 0: operations.push_back(copy(stream())); break;
            case 1: operations.push_back(kernel(stream())); break;
            case 2: operations.push_back(record(stream(), slot % 4)); break;
            case 3: operations.push_back(await(stream(), slot % 4)); break;
            case 4:
                if (random() % 3 == 0) operations.push_back(wait(stream(), stream()));
                if (random() % 40 == 0) operations.push_back({.kind = OperationKind::device_sync});
                if (random() % 40 == 0) operations.push_back({.kind = OperationKind::stream_sync, .stream = stream()});
                break;
            case 5:
                if (found != live.end()) operations.push_back(also_used_on(stream(), slot));
                break;
            default:
                if (found != live.end()) {
                    operations.push_back(free(slot, found->second));
                    operations.back().stream = stream();
                    live.erase(found);
                } else {
                    live[slot] = Bytes{static_cast<std::int64_t>(random() % 5000)};
                    operations.push_back(allocate(slot, live[slot], stream()));
                }
        }
    }
    for (const auto& [slot, bytes] : live) operations.push_back(free(slot, bytes));
    return hand_program(operations, 24, 4);
}

TEST(PlannedMemory, NeverLetsTwoBuffersInUseShareBytesWhateverTheOrder) {
    std::mt19937_64 random(tests::property_seed(7));
    std::int64_t shared = 0;
    for (int run = 0; run < 100; ++run) {
        SCOPED_TRACE(run);
        const StepProgram program = random_program(random);
        expect_sound(program, plan_memory(program), &shared);
    }
    EXPECT_GT(shared, 1000);
}

}  // namespace
}  // namespace stowage::memory
