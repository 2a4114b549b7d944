#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/scenarios.hpp"
#include "tests/support/lower_stage.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/synthetic_stage.hpp"

// Which groups a program moves: cases whose numbers were read off Megatron-LM's own manager, run on a stand-in for
// streams and tensors, and cases of the same kinds derived in comments. Every group of a synthetic layer saves one
// tensor of 2 MiB, above the filter. a is core_attn, p attn_proj.

namespace stowage::program {
namespace {

using tests::lower_stage;
using tests::synthetic_stage;
using types::Module;
using types::ModuleSet;
using types::OffloadChoice;
using types::RuleSet;

constexpr std::int64_t kMiB = 1 << 20;
constexpr RuleSet kMain = RuleSet::main_2026_08;
const ModuleSet kBoth{Module::core_attn, Module::attn_proj};

std::int64_t copies(const Lowered& lowered) {
    return std::accumulate(lowered.counts.groups.begin(), lowered.counts.groups.end(), std::int64_t{0});
}
std::int64_t table_mib(const Lowered& lowered, Module module) {
    return lowered.counts.table[static_cast<std::size_t>(module)].count / kMiB;
}

/// Copies that the program of a steady step holds.
std::int64_t copies_issued(const Lowered& lowered) {
    const auto all = tests::expand(lowered.program, RunStage::steady);
    return std::count_if(all.begin(), all.end(), [](const auto& issued) {
        return issued.operation.kind == OperationKind::copy && issued.operation.direction == Direction::device_to_host;
    });
}

OffloadChoice with_fraction(double fraction, ModuleSet modules = kBoth) {
    return {.modules = modules, .fraction = fraction};
}
OffloadChoice with_delta(std::int64_t delta, ModuleSet modules) {
    OffloadChoice choice{.modules = modules};
    choice.delta_bytes_across_pp_ranks = delta;
    return choice;
}

// ----------------------------------------------------------------------------------------------- one stage, two names

struct FractionCase {
    double fraction;
    std::int64_t copies;
    std::int64_t table_a;
    std::int64_t table_p;
};

// One stage, four microbatches, four layers. Of chunk 0 six groups are left by the margin, of the others eight by the
// flags, of which the last of each name is not copied while its chunk is next in backward. The fraction drops
// trunc(6 (1 - f)) and trunc(8 (1 - f)) from the tails: 0.8 -> 1 and 1: 5 + 3 * 6 = 23, since the last a is still kept;
// 0.5 -> 3 and 4: 3 + 3 * 4 = 15; 0.25 -> 4 and 6: 2 + 3 * 2 = 8.
TEST(SelectionCases, TheFractionOfOneStage) {
    for (const FractionCase& expected :
         {FractionCase{1.0, 24, 6, 6}, {0.8, 23, 6, 4}, {0.5, 15, 4, 2}, {0.25, 8, 2, 2}}) {
        SCOPED_TRACE(expected.fraction);
        const Lowered lowered = lower_stage(synthetic_stage(0, 1, 4), 4, with_fraction(expected.fraction));
        EXPECT_EQ(lowered.counts.record_groups, 32);
        EXPECT_EQ(copies(lowered), expected.copies);
        EXPECT_EQ(copies_issued(lowered), expected.copies);
        EXPECT_EQ(table_mib(lowered, Module::core_attn), expected.table_a);
        EXPECT_EQ(table_mib(lowered, Module::attn_proj), expected.table_p);
    }
}

// With one microbatch nothing at all is moved; with four the first chunk, empty, is taken for a finished one. Older
// rules move nothing and go on.
TEST(SelectionCases, AFractionOfNothing) {
    const auto stage = synthetic_stage(0, 1, 4);
    const Lowered one = lower_stage(stage, 1, with_fraction(0));
    EXPECT_FALSE(one.chunk_mismatch);
    EXPECT_EQ(copies(one), 0);
    EXPECT_EQ(table_mib(one, Module::core_attn) + table_mib(one, Module::attn_proj), 0);
    EXPECT_TRUE(lower_stage(stage, 4, with_fraction(0)).chunk_mismatch);
    const Lowered older = lower_stage(stage, 4, with_fraction(0), RuleSet::core_0_18);
    EXPECT_FALSE(older.chunk_mismatch);
    EXPECT_EQ(copies(older), 0);
}

// In the first iteration every group is moved; a microbatch has eight of them on the host before its backward: the pool
// holds eight buffers, 16 MiB, ever after.
TEST(SelectionCases, ThePoolHoldsWhatTheFirstIterationHasInFlight) {
    const Lowered lowered = lower_stage(synthetic_stage(0, 1, 4), 4, {.modules = kBoth});
    for (const auto& [stage, most] : {std::pair{RunStage::record, 8}, std::pair{RunStage::steady, 6}}) {
        int held = 0;
        int peak = 0;
        for (const auto& issued : tests::expand(lowered.program, stage)) {
            if (issued.operation.kind == OperationKind::pinned_acquire) peak = std::max(peak, ++held);
            if (issued.operation.kind == OperationKind::pinned_release) --held;
        }
        EXPECT_EQ(peak, most);
        EXPECT_EQ(held, 0);
    }
}

// Eleven layers of one name: the margin takes one, the fraction trunc(10 (1 - f)) in doubles: 10 * (1 - 0.9) is below
// 1, 10 * (1 - 0.8) below 2, 10 * (1 - 0.7) above 3.
TEST(SelectionCases, TheFractionTruncatesAsDoublesDo) {
    for (const auto& [fraction, expected] : {std::pair{0.9, 10}, {0.8, 9}, {0.7, 7}}) {
        const Lowered lowered = lower_stage(synthetic_stage(0, 1, 11), 1, with_fraction(fraction, {Module::core_attn}));
        EXPECT_EQ(copies(lowered), expected) << fraction;
        EXPECT_EQ(table_mib(lowered, Module::core_attn), 2 * expected) << fraction;
    }
}

// ----------------------------------------------------------------------------------------------------------- pipelines

// The first three of four ranks have an older chunk next in backward, so only the margin's two of chunk 0 stay: 62 of
// 64. The last rank's chunk is always next: two of each of eight microbatches stay. Every rank's table counts one
// microbatch, though 4, 3, 2 and 1 are in flight.
TEST(SelectionCases, FourStages) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const Lowered lowered = lower_stage(synthetic_stage(rank, 4, 4), 8, {.modules = kBoth});
        EXPECT_EQ(lowered.counts.record_groups, 64);
        EXPECT_EQ(copies(lowered), rank < 3 ? 62 : 48);
        EXPECT_EQ(table_mib(lowered, Module::core_attn), 6);
        EXPECT_EQ(table_mib(lowered, Module::attn_proj), 6);
    }
}

// Three names, attn_norm around the two: the margin is three. 8 microbatches x 4 layers x 3 = 96: 93 on the first
// ranks, 96 - 8 * 3 = 72 on the last. A delta of one byte a rank keeps a whole group more, once: on ranks 1 to 3.
TEST(SelectionCases, ThreeNamesOnFourStagesWithADelta) {
    const ModuleSet three{Module::attn_norm, Module::core_attn, Module::attn_proj};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        const auto stage = synthetic_stage(rank, 4, 4, {.norm = true});
        EXPECT_EQ(copies(lower_stage(stage, 8, {.modules = three})), rank < 3 ? 93 : 72);
        const Lowered kept = lower_stage(stage, 8, with_delta(1, three));
        EXPECT_FALSE(kept.chunk_mismatch);
        EXPECT_EQ(copies(kept), (rank < 3 ? 93 : 72) - (rank > 0 ? 1 : 0));
    }
}

// Without a group around them, a delta that keeps the first layer's two makes the chunk look finished.
TEST(SelectionCases, ADeltaThatKeepsTheFirstGroups) {
    EXPECT_FALSE(lower_stage(synthetic_stage(0, 4, 4), 8, with_delta(2 * kMiB, kBoth)).chunk_mismatch);
    EXPECT_TRUE(lower_stage(synthetic_stage(1, 4, 4), 8, with_delta(2 * kMiB, kBoth)).chunk_mismatch);
}

// Two ranks of two virtual stages of two layers, four microbatches: 8 chunks of 4 groups. Backwards: B0 B1 A0 A1 B2 B3
// A2 A3. Rank 0 runs A0 A1 B0 B1 first and then a forward before each backward: no chunk but B0 is next in backward
// when it runs, so two stay: 30. Rank 1 runs A0 A1 first, then B0 before its own backward, and so B1, B2 and B3: 2 of
// each stay: 24.
TEST(SelectionCases, TwoStagesOfTwoVirtualStages) {
    EXPECT_EQ(copies(lower_stage(synthetic_stage(0, 2, 2, {}, 2), 4, {.modules = kBoth})), 30);
    EXPECT_EQ(copies(lower_stage(synthetic_stage(1, 2, 2, {}, 2), 4, {.modules = kBoth})), 24);
}

/// Virtual stage 0: three layers of a and p; virtual stage 1: three of expert_fc1 alone.
layers::StageLayers disjoint_names(std::int64_t rank) {
    layers::StageLayers stage = synthetic_stage(rank, 2, 3, {}, 2);
    const std::size_t experts = stage.scripts.size();
    stage.scripts.push_back(tests::synthetic_layer({.expert_elements = 1 << 20}));
    stage.downgraded.assign(stage.scripts.size(), {});
    stage.downgraded[experts] = kBoth;
    for (std::size_t i = 0; i < stage.chunks[1].order.size(); ++i)
        if (stage.chunks[1].layer_numbers[i] >= 0) stage.chunks[1].order[i] = experts;
    return stage;
}

// The margin is a count of two and spent on a and p of A0, met first from the last backward on; expert_fc1 has none.
// Its last group stays where its chunk is the next in backward that has the name: on rank 0 that of B0 and B2 (A0 and
// A1 come between and lack it): 36 - 2 - 2 = 32. On rank 1, which runs each B before its own backward, all four: 30.
TEST(SelectionCases, NamesThatVirtualStagesDoNotShare) {
    ModuleSet three = kBoth;
    three.insert(Module::expert_fc1);
    for (const auto& [rank, expected] : {std::pair{0, 32}, std::pair{1, 30}}) {
        const Lowered lowered = lower_stage(disjoint_names(rank), 4, {.modules = three});
        EXPECT_EQ(lowered.counts.record_groups, 36);
        EXPECT_EQ(copies(lowered), expected);
        EXPECT_EQ(table_mib(lowered, Module::core_attn), 10);
        EXPECT_EQ(table_mib(lowered, Module::attn_proj), 10);
        EXPECT_EQ(table_mib(lowered, Module::expert_fc1), 6);
    }
}

// One layer a chunk and two names: the margin empties the chunk whose backward is first. Older rules go on: rank 0 of
// two moves three of four microbatches, the last rank none. One name does no harm.
TEST(SelectionCases, OneLayerAChunk) {
    for (const std::int64_t stages : {1, 2}) {
        EXPECT_TRUE(lower_stage(synthetic_stage(0, stages, 1), 4, {.modules = kBoth}).chunk_mismatch);
        EXPECT_FALSE(lower_stage(synthetic_stage(0, stages, 1), 4, {.modules = {Module::core_attn}}).chunk_mismatch);
    }
    EXPECT_EQ(copies(lower_stage(synthetic_stage(0, 2, 1), 4, {.modules = kBoth}, RuleSet::pr_3219)), 6);
    EXPECT_EQ(copies(lower_stage(synthetic_stage(1, 2, 1), 4, {.modules = kBoth}, RuleSet::pr_3219)), 0);
    EXPECT_EQ(copies(lower_stage(synthetic_stage(0, 2, 1), 2, {.modules = {Module::core_attn}})), 1);
    EXPECT_EQ(copies(lower_stage(synthetic_stage(0, 1, 1), 2, {.modules = {Module::core_attn}})), 0);
}

// ----------------------------------------------------------------------------------------- dense and MoE layers, 2 x 4

/// Megatron's functional test without multi-token prediction and without overlap: 3 dense and 12 MoE layers on two
/// ranks of four virtual stages: 3, 2, 2, 2 and 2, 2, 2, none.
types::Scenario functional_test() {
    types::Scenario scenario = layers::testing::deepseek_v3_dense();
    types::Model& model = scenario.model;
    model.num_layers = 15;
    model.hidden_size = 1024;
    model.ffn_hidden_size = 4096;
    model.num_attention_heads = 32;
    model.num_query_groups = 32;
    model.num_experts = 32;
    model.moe_router_topk = 4;
    model.moe_ffn_hidden_size = 1024;
    model.vocab_size = 1024;
    for (int layer = 0; layer < 15; ++layer) model.moe_layer_freq.push_back(layer >= 3);
    types::ParallelLayout& parallel = scenario.parallel;
    parallel.tensor_model_parallel_size = 2;
    parallel.sequence_parallel = true;
    parallel.pipeline_model_parallel_size = 2;
    parallel.num_virtual_stages_per_pipeline_rank = 4;
    parallel.pipeline_model_parallel_layout = "Et*3|tt|tt|tt|tt|tt|tt|L";
    parallel.expert_model_parallel_size = 4;
    parallel.data_parallel_size = 2;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 8, .seq_length = 4096};
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm, types::RecomputeModule::moe_act};
    types::Node& node = scenario.hardware.node;
    node.gpus_per_node = 8;
    node.nvlink = {{100e9}, Nanoseconds{2000}};
    node.network = node.nvlink;
    node.device.memory_bandwidth = {1e12};
    node.device.gemm_bf16 = {5e14};
    node.device.attention_forward_bf16 = {4e14};
    node.device.attention_backward_bf16 = {3e14};
    const types::CopyCurve curve({{Bytes{kMiB}, Nanoseconds{20'000}}, {Bytes{2 * kMiB}, Nanoseconds{40'000}}});
    node.copy.device_to_host = curve;
    node.copy.host_to_device = curve;
    return scenario;
}

struct FunctionalCase {
    std::int64_t rank;
    std::int64_t groups, steady;
    std::vector<std::pair<Module, std::int64_t>> table;  ///< MiB
};

// Groups: dense 4, MoE 7. Rank 0: 4 (3 * 4 + 3 * 2 * 7) = 216; seven stay by the margin, and three of D2, whose
// backward is next for the experts' names, as only dense chunks lie between: 206. Rank 1: 4 * 3 * 2 * 7 = 168, margin
// seven: 161. The table counts A0 A1 B0 B1 C0 C1 D0 of rank 0, seven groups of D0 off: 3 + 3 + 2 + 2 + 2 + 2 + 1 = 15
// of each name of attention, 2 + 2 + 2 + 2 + 1 = 9 of the experts'. Rank 1: A0 A1 B0 B1 C0 C1 D0, of which D0 is empty
// and C0's margin takes one: 11. Sizes: norms 2048 x 1024 x 2 = 4 MiB, attn_proj 4096 x 16 x 128 x 2 = 16, expert_fc1
// 8192 x 1024 x 2 = 16, moe_act 8192 x 2048 x 2 = 32.
TEST(SelectionCases, DenseAndMoeLayersOfAnInterleavedPipeline) {
    const ModuleSet seven{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                          Module::mlp_norm,  Module::expert_fc1, Module::moe_act};
    const types::Scenario scenario = functional_test();
    const Durations durations(scenario.hardware, scenario.parallel);
    for (const FunctionalCase& expected : {FunctionalCase{0,
                                                          216,
                                                          206,
                                                          {{Module::attn_norm, 15 * 4},
                                                           {Module::attn_proj, 15 * 16},
                                                           {Module::mlp_norm, 9 * 4},
                                                           {Module::expert_fc1, 9 * 16},
                                                           {Module::moe_act, 9 * 32}}},
                                           FunctionalCase{1,
                                                          168,
                                                          161,
                                                          {{Module::attn_norm, 11 * 4},
                                                           {Module::attn_proj, 11 * 16},
                                                           {Module::mlp_norm, 11 * 4},
                                                           {Module::expert_fc1, 11 * 16},
                                                           {Module::moe_act, 11 * 32}}}}) {
        SCOPED_TRACE(expected.rank);
        const Lowered lowered =
            lower(layers::build_megatron_stage(scenario, expected.rank), 4, {.modules = seven}, kMain, durations);
        EXPECT_FALSE(lowered.chunk_mismatch);
        EXPECT_EQ(lowered.counts.record_groups, expected.groups);
        EXPECT_EQ(copies(lowered), expected.steady);
        for (const auto& [module, mib] : expected.table)
            EXPECT_EQ(table_mib(lowered, module), mib) << types::name_of(module);
    }
}

// ----------------------------------------------------------------------------------------------------- copies under
// way

/// Waits of the main stream for copies to the host.
std::int64_t joins(const Lowered& lowered, RunStage stage) {
    const auto all = tests::expand(lowered.program, stage);
    return std::count_if(all.begin(), all.end(), [](const auto& issued) {
        const Operation& operation = issued.operation;
        return operation.kind == OperationKind::event_wait && operation.stream == Stream::main &&
               operation.scope != kGraphScope && operation.slot % 2 == 0;
    });
}

std::int64_t joins_with_cap(const layers::StageLayers& stage, std::int64_t microbatches,
                            std::optional<std::int64_t> cap) {
    OffloadChoice choice{.modules = kBoth};
    choice.max_inflight_offloads = cap;
    return joins(lower_stage(stage, microbatches, choice), RunStage::steady);
}

// Six copies, three of each name; with cap c each name joins all but the last c: 6, 4, 2; without a cap nobody waits.
TEST(SelectionCases, ACapJoinsTheOldestCopyOfItsName) {
    const auto stage = synthetic_stage(0, 1, 4);
    EXPECT_EQ(joins_with_cap(stage, 1, 0), 6);
    EXPECT_EQ(joins_with_cap(stage, 1, 1), 4);
    EXPECT_EQ(joins_with_cap(stage, 1, 2), 2);
    EXPECT_EQ(joins_with_cap(stage, 1, 3), 0);
    EXPECT_EQ(joins_with_cap(stage, 1, std::nullopt), 0);
}

// The cap is of a chunk and a name, not of the rank: rank 0 of two, four microbatches, cap 1: chunk 0 copies 3 of each
// name and joins 2 + 2, the other three copy 4 and join 3 + 3: 22. As many copies again could float.
TEST(SelectionCases, ACapIsOfOneChunk) {
    EXPECT_EQ(joins_with_cap(synthetic_stage(0, 2, 4), 4, 1), 22);
    EXPECT_EQ(joins_with_cap(synthetic_stage(0, 2, 4), 4, 0), 30);
}

// Under a graph of the whole iteration the same waits are captured.
TEST(SelectionCases, ACapIsCapturedWithTheIteration) {
    layers::StageLayers stage = synthetic_stage(0, 1, 4);
    types::CudaGraph graph;
    graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
    tests::use_graphs(stage, graph);
    for (const auto& [cap, expected] : {std::pair{0, 6}, {1, 4}, {2, 2}}) {
        OffloadChoice choice{.modules = kBoth};
        choice.max_inflight_offloads = cap;
        const Lowered lowered = lower_stage(stage, 1, choice);
        EXPECT_EQ(joins(lowered, RunStage::capture), expected);
        EXPECT_EQ(joins(lowered, RunStage::steady), 0);  // nothing but the launch
        EXPECT_EQ(copies(lowered), 6);
    }
}

}  // namespace
}  // namespace stowage::program
