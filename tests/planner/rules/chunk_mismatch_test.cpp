#include "planner/rules/chunk_mismatch.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/manager_driver.hpp"
#include "tests/support/seed.hpp"

namespace stowage::rules {
namespace {

using types::Module;
using types::ModuleSet;
using types::Scenario;

Scenario job(std::int64_t layers, std::int64_t stages, std::int64_t microbatches) {
    Scenario scenario;
    scenario.model.num_layers = layers;
    scenario.model.num_experts = 4;
    scenario.parallel.pipeline_model_parallel_size = stages;
    scenario.batch.global_batch_size = microbatches;
    return scenario;
}

constexpr ModuleSet kAttention{Module::core_attn, Module::attn_proj};

TEST(ChunkMismatch, NeedsTheFirstGroupToStay) {
    // Four layers of two groups: the first chunk has six eligible, the others eight.
    EXPECT_TRUE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0}));
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0.25}));
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 1}));
    // trunc(6 * (1 - 0.1)) = 5 leaves one of the first chunk; trunc(8 * 0.9) = 7 leaves one of the others.
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 4), {.modules = kAttention, .fraction = 0.1}));
}

TEST(ChunkMismatch, NeedsAChunkAfterIt) {
    EXPECT_FALSE(loses_count_of_chunks(job(4, 1, 1), {.modules = kAttention, .fraction = 0}));
    EXPECT_TRUE(loses_count_of_chunks(job(4, 1, 2), {.modules = kAttention, .fraction = 0}));
}

TEST(ChunkMismatch, StrikesOneLayerPerRankWithTwoGroupsAndSparesOne) {
    // The margin keeps the last group of each name of the first chunk: all that it has.
    EXPECT_TRUE(loses_count_of_chunks(job(1, 1, 2), {.modules = kAttention}));
    EXPECT_TRUE(loses_count_of_chunks(job(2, 2, 2), {.modules = kAttention}));
    EXPECT_FALSE(loses_count_of_chunks(job(1, 1, 2), {.modules = {Module::core_attn}}));
    EXPECT_FALSE(loses_count_of_chunks(job(2, 2, 2), {.modules = {Module::core_attn}}));
}

TEST(ChunkMismatch, SparesGroupsInsideAnOpenNorm) {
    // mlp_norm is open while expert_fc1 and moe_act end; when it ends itself, nothing follows in one layer.
    const ModuleSet experts{Module::mlp_norm, Module::expert_fc1, Module::moe_act};
    EXPECT_FALSE(loses_count_of_chunks(job(1, 1, 2), {.modules = experts}));
    EXPECT_TRUE(loses_count_of_chunks(job(2, 1, 2), {.modules = experts, .fraction = 0}));
}

TEST(ChunkMismatch, FollowsFromADeltaOnLaterRanks) {
    // Any delta keeps the first group of rank 1's first chunk, and with it the count is lost.
    EXPECT_TRUE(
        loses_count_of_chunks(job(8, 2, 4), {.modules = {Module::core_attn}, .delta_bytes_across_pp_ranks = 1}));
    EXPECT_FALSE(
        loses_count_of_chunks(job(8, 1, 4), {.modules = {Module::core_attn}, .delta_bytes_across_pp_ranks = 1}));
}

// Two layers of {core_attn, expert_fc1}; the first chunk keeps the last of each. At fraction 0.5 one of its two others
// moves, core_attn of the first layer, and eager steps wait for its reload. With attention in a graph a replay sees the
// experts only: the first layer's stays, and the second layer's is taken for the next chunk's.
TEST(ChunkMismatch, StrikesReplaysWhereOnlyCapturedGroupsMove) {
    Scenario scenario = job(2, 1, 2);
    const types::OffloadChoice choice{.modules = {Module::core_attn, Module::expert_fc1}, .fraction = 0.5};
    EXPECT_FALSE(loses_count_of_chunks(scenario, choice));
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::moe_router};
    EXPECT_FALSE(loses_count_of_chunks(scenario, choice));
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn};
    EXPECT_TRUE(loses_count_of_chunks(scenario, choice));
}

// One layer of {core_attn, attn_proj}: both stay, and the second is taken for the next chunk's. A checkpoint around the
// core attention opens no group for it, and one group alone has none after it.
TEST(ChunkMismatch, CountsNoGroupThatACheckpointHides) {
    Scenario scenario = job(1, 1, 2);
    EXPECT_TRUE(loses_count_of_chunks(scenario, {.modules = kAttention}));
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::core_attn};
    EXPECT_FALSE(loses_count_of_chunks(scenario, {.modules = kAttention}));
}

/// The hooks of a MoE layer that belong to `modules`.
tests::LayerHooks hooks_of(ModuleSet modules) {
    tests::LayerHooks hooks = tests::nested_moe(types::Bytes{1 << 21});
    std::erase_if(hooks, [&](const tests::Hook& hook) { return !modules.contains(hook.module); });
    return hooks;
}

/// Whether the manager itself, run over two iterations on every rank, loses count.
bool manager_loses_count(const Scenario& scenario, const types::OffloadChoice& choice) {
    const std::int64_t stages = scenario.parallel.pipeline_model_parallel_size;
    const tests::ChunkLayers layers(static_cast<std::size_t>(scenario.model.num_layers / stages),
                                    hooks_of(choice.modules));
    for (std::int64_t rank = 0; rank < stages; ++rank) {
        tests::ManagerDriver driver(tests::plain_pipeline(rank, stages, scenario.microbatches(), layers), choice,
                                    types::RuleSet::main_2026_08);
        driver.record();
        driver.steady();
        if (driver.manager().chunk_mismatch()) return true;
    }
    return false;
}

TEST(ChunkMismatch, IsWhereTheManagerItselfStops) {
    std::mt19937_64 random(tests::property_seed(20260803));
    const std::vector<Module> names = {Module::qkv_linear, Module::core_attn,  Module::attn_proj,
                                       Module::mlp_norm,   Module::expert_fc1, Module::moe_act};
    int losing = 0;
    for (int round = 0; round < 2000; ++round) {
        const auto pick = [&](std::uint64_t count) { return static_cast<std::int64_t>(random() % count); };
        const std::int64_t stages = 1 + pick(3);
        const Scenario scenario = job(stages * (1 + pick(4)), stages, 1 + pick(6));
        types::OffloadChoice choice;
        choice.fraction = static_cast<double>(pick(11)) / 10;
        for (const Module module : names)
            if (pick(3) == 0) choice.modules.insert(module);
        if (choice.modules.empty()) continue;
        choice.delta_bytes_across_pp_ranks = pick(2);
        const bool predicted = loses_count_of_chunks(scenario, choice);
        losing += predicted ? 1 : 0;
        ASSERT_EQ(predicted, manager_loses_count(scenario, choice))
            << choice.modules.joined() << ", fraction " << choice.fraction << ", delta "
            << choice.delta_bytes_across_pp_ranks << ", " << scenario.model.num_layers << " layers on " << stages
            << " stages, " << scenario.microbatches() << " microbatches";
    }
    EXPECT_GT(losing, 100);
}

}  // namespace
}  // namespace stowage::rules
