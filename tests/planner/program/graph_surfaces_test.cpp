#include "planner/program/graph_surfaces.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/lower_stage.hpp"
#include "tests/support/synthetic_stage.hpp"

namespace stowage::program {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;

constexpr Bytes kInput{4};
constexpr Bytes kMask{1};

/// One layer on each virtual stage.
std::vector<std::vector<GraphSurface>> one_layer(std::int64_t virtual_stages) {
    return {static_cast<std::size_t>(virtual_stages), {{{kInput, kMask}, {kInput}}}};
}

PipelineShape interleaved(std::int64_t rank) {
    return {.rank = rank, .ranks = 4, .virtual_stages = 2, .microbatches = 8, .group = 4};
}

// Forwards before the first backward, and one more in flight while it runs: min(2 (4 - r - 1) + 4, 16) + 1 = 11, 9, 7
// and 5 chunks of the two virtual stages, whose inputs have the same sizes. Without reuse each of 8 microbatches has
// its own on each virtual stage.
TEST(GraphSurfaces, HoldAsManyInputsAsTheInterleavedScheduleHasInFlight) {
    for (const auto& [rank, in_flight] : {std::pair{0, 11}, std::pair{1, 9}, std::pair{2, 7}, std::pair{3, 5}}) {
        const PipelineShape shape = interleaved(rank);
        EXPECT_EQ(warmup_chunks(shape) + 1, in_flight);
        const SurfacePlan plan = plan_surfaces(capture_order(shape), one_layer(2), true);
        EXPECT_EQ(plan.samples, in_flight);
        EXPECT_EQ(plan.without_reuse, 8 * 2);
        EXPECT_EQ(plan.inputs.size(), 2U * static_cast<std::size_t>(in_flight));  // hidden states and mask
        EXPECT_EQ(plan.gradients.size(), 1U);                                     // shared by all
    }
}

// Plain 1F1B, stage r of four: min(4 - r - 1, M) ahead and one more: 4, 3, 2, 1 of 8 microbatches; of three layers
// each.
TEST(GraphSurfaces, HoldAsManyInputsAsAPlainPipelineHasInFlight) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const PipelineShape shape{.rank = rank, .ranks = 4, .virtual_stages = 1, .microbatches = 8};
        const GraphSurface layer{{kInput}, {kInput}};
        const SurfacePlan plan = plan_surfaces(capture_order(shape), {{layer, layer, layer}}, true);
        EXPECT_EQ(plan.samples, 3 * (4 - rank));
        EXPECT_EQ(plan.without_reuse, 24);
        EXPECT_EQ(plan.gradients.size(), 1U);
    }
}

// Virtual stages of different sizes share nothing. Of rank 0's 10 chunks ahead A has 0 to 3 and 4, 5, B 0 to 3; the
// next forwards are A6 A7 B4 ..., each before a backward of B until B's first four are done. A: all eight are in flight
// before A0's backward; B: B0 to B3, and B4 comes when two have been.
TEST(GraphSurfaces, AreSharedOnlyByTensorsOfEqualSizes) {
    const std::vector<std::vector<GraphSurface>> two{{{{kInput}, {kInput}}}, {{{Bytes{8}}, {Bytes{8}}}}};
    const SurfacePlan plan = plan_surfaces(capture_order(interleaved(0)), two, true);
    EXPECT_EQ(std::count(plan.inputs.begin(), plan.inputs.end(), kInput), 8);
    EXPECT_EQ(std::count(plan.inputs.begin(), plan.inputs.end(), Bytes{8}), 4);
    EXPECT_EQ(plan.gradients, (std::vector<Bytes>{Bytes{8}, kInput}));
}

// One stage captures one microbatch, whatever the step has.
TEST(GraphSurfaces, HoldOneMicrobatchOnOneStage) {
    const PipelineShape shape{.rank = 0, .ranks = 1, .virtual_stages = 1, .microbatches = 8};
    EXPECT_EQ(capture_order(shape), (std::vector<CapturedPass>{{Chunk{}, true}, {Chunk{}, false}}));
    const SurfacePlan plan = plan_surfaces(capture_order(shape), one_layer(1), true);
    EXPECT_EQ(plan.samples, 1);
    EXPECT_EQ(plan.without_reuse, 1);
}

TEST(GraphSurfaces, HaveTheirOwnBuffersInEveryPassWithoutReuse) {
    const SurfacePlan plan = plan_surfaces(capture_order(interleaved(3)), one_layer(2), false);
    EXPECT_EQ(plan.inputs.size(), 2U * 16);
    EXPECT_EQ(plan.gradients.size(), 16U);
}

/// Buffers that the capture of rank `rank` of four allocates for `layers` layers, eight microbatches.
std::int64_t buffers(std::int64_t rank, std::int64_t layers, CudaGraphImpl impl, Lowered* out = nullptr) {
    layers::StageLayers stage = tests::synthetic_stage(rank, 4, layers, {.expert_elements = 1 << 20});
    types::CudaGraph graph;
    graph.cuda_graph_impl = impl;
    graph.cuda_graph_modules = {CudaGraphModule::attn};
    tests::use_graphs(stage, graph);
    Lowered lowered = tests::lower_stage(stage, 8, {});
    std::int64_t allocated = 0;
    for (const Instance& instance : lowered.program.instances(RunStage::capture))
        if (lowered.program.scope_frames[instance.frames_begin] == lowered.program.graph_frame)
            for (const Operation& operation : lowered.program.bodies[index(instance.body)].operations)
                allocated += operation.kind == OperationKind::allocate ? 1 : 0;
    if (out != nullptr) *out = std::move(lowered);
    return allocated;
}

// The program allocates what the plan says, before the first capture: inputs of 4 - r microbatches of two layers, and
// one gradient.
TEST(GraphSurfaces, AreAllocatedBeforeTheCaptures) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        Lowered lowered;
        EXPECT_EQ(buffers(rank, 2, CudaGraphImpl::transformer_engine, &lowered), 2 * (4 - rank) + 1);
        EXPECT_EQ(lowered.graph_inputs, 2 * (4 - rank));
        EXPECT_EQ(lowered.graph_inputs_without_reuse, 16);
    }
}

// Local graphs keep an input and a gradient for every layer of every microbatch: attention's graph ends before the
// experts, so nothing is handed on in place: 8 x 2 x 2.
TEST(GraphSurfaces, OfLocalGraphsAreNotShared) { EXPECT_EQ(buffers(0, 2, CudaGraphImpl::local), 32); }

}  // namespace
}  // namespace stowage::program
