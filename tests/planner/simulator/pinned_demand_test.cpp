#include "planner/memory/pinned_demand.hpp"

#include <gtest/gtest.h>

#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "tests/support/hand_program.hpp"
#include "tests/support/peer_stage.hpp"

namespace stowage::simulator {
namespace {

using namespace types::literals;

struct Pinned {
    memory::PinnedArena record;
    memory::PinnedArena steady;
    Bytes whole;
    memory::PinnedStats megatron;
};

Pinned pinned_of(const types::ModuleSet& modules) {
    const types::Hardware hardware = testing::peer_hardware();
    const types::ParallelLayout layout;
    const program::Durations durations(hardware, layout);
    types::OffloadChoice choice;
    choice.modules = modules;
    const program::Lowered lowered = program::lower(testing::peer_stage(modules), testing::kPeerMicrobatches, choice,
                                                    types::RuleSet::main_2026_08, durations);
    return {memory::PinnedArena(memory::pinned_uses(lowered.program, RunStage::record)),
            memory::PinnedArena(memory::pinned_uses(lowered.program, RunStage::steady)),
            memory::pinned_arena_size(lowered.program), simulate({&lowered.program}, hardware.node).ranks[0].pinned};
}

TEST(PinnedDemand, OfTheSteadyStepIsTheManagersTableAndOfTheFirstOneAllLayers) {
    // Seven layers of 32 MiB query, key, value and output: 896 MiB. The first iteration moves the eighth as well.
    const Pinned pinned = pinned_of({types::Module::core_attn});
    EXPECT_EQ(pinned.steady.size(), 896_MiB);
    EXPECT_EQ(pinned.record.size(), 1024_MiB);
    EXPECT_EQ(pinned.whole, 1024_MiB);
    EXPECT_TRUE(pinned.steady.exact());
    EXPECT_TRUE(pinned.record.exact());
}

TEST(PinnedDemand, IsBelowMegatronsPoolWhereSizesAreNoPowersOfTwo) {
    // qkv_linear saves 32 MiB of input and a weight of 96 MiB, which the pool's blocks round up to 128. All eight
    // layers in the first iteration: 8 * 128 = 1024 MiB of data, 8 * (32 + 128) = 1280 MiB of blocks.
    const Pinned pinned = pinned_of({types::Module::qkv_linear});
    EXPECT_EQ(pinned.record.size(), 1024_MiB);
    EXPECT_EQ(pinned.megatron.peak_in_use, 1024_MiB);
    EXPECT_EQ(pinned.megatron.reserved, 1280_MiB);
}

TEST(PinnedDemand, OfAProgramThatMovesNothingIsNothing) {
    EXPECT_EQ(pinned_of({}).whole, 0_B);
    EXPECT_EQ(pinned_of({}).steady.buffers(), 0);
}

TEST(PinnedDemand, CountsOneBufferForEachCopyToTheHost) {
    // Four microbatches of seven layers of four tensors.
    EXPECT_EQ(pinned_of({types::Module::core_attn}).steady.buffers(), 4 * 7 * 4);
}

/// One body of its own: takes `bytes` and gives them back.
void add_use(program::StepProgram& program, RunStage stage, Bytes bytes) {
    const auto body = static_cast<program::BodyId>(program.bodies.size());
    program.bodies.push_back({"pins",
                              {{.kind = program::OperationKind::pinned_acquire, .slot = 0, .bytes = bytes},
                               {.kind = program::OperationKind::pinned_release, .slot = 0, .bytes = bytes}}});
    program.sequence[static_cast<std::size_t>(stage)] = {{body, 0, 0, 0}};
}

TEST(PinnedDemand, KeepsWhatGraphsUseApartFromWhatOtherStagesShare) {
    // A replay uses the 3 MiB of its capture while the rest of the step uses 2: 5, and 3 + 5 for the first iteration,
    // which the executor lays out behind the graphs' as well.
    program::StepProgram program = tests::hand_program({}, 1);
    add_use(program, RunStage::record, 5_MiB);
    add_use(program, RunStage::eager, 4_MiB);
    add_use(program, RunStage::capture, 3_MiB);
    add_use(program, RunStage::steady, 2_MiB);
    EXPECT_EQ(memory::pinned_arena_size(program), 8_MiB);
    EXPECT_EQ(memory::pinned_arena_size(program, false), 5_MiB);
}

}  // namespace
}  // namespace stowage::simulator
