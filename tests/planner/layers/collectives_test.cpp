#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

std::vector<Collective> collectives(const LayerScript& script, const std::vector<Step>& steps) {
    std::vector<Collective> result;
    for (const Step& step : steps)
        if (step.kind == StepKind::collective) result.push_back(script.collectives[step.detail]);
    return result;
}

std::vector<CollectiveKind> kinds(const std::vector<Collective>& list) {
    std::vector<CollectiveKind> result;
    for (const Collective& collective : list) result.push_back(collective.kind);
    return result;
}

constexpr auto kReduce = CollectiveKind::all_reduce;
constexpr auto kGather = CollectiveKind::all_gather;
constexpr auto kScatter = CollectiveKind::reduce_scatter;

Scenario split_llama(bool sequence_parallel) {
    Scenario scenario = llama3_70b();
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = sequence_parallel;
    return scenario;
}

TEST(Collectives, OneRankHasNone) {
    const LayerScript layer = script_of(llama3_70b(), ScriptKind::dense_layer);
    EXPECT_TRUE(layer.collectives.empty());
    const LayerScript moe = script_of(qwen3_30b_a3b(), ScriptKind::moe_layer);
    EXPECT_TRUE(moe.collectives.empty());
}

// One after each half of the layer in forward, one before each half's first linear in backward, 2 * 4096 * 8192 bytes.
TEST(Collectives, OfTensorParallelismAreTwoAllReducesEachWay) {
    const LayerScript layer = script_of(split_llama(false), ScriptKind::dense_layer);
    EXPECT_EQ(kinds(collectives(layer, layer.forward)), (std::vector<CollectiveKind>{kReduce, kReduce}));
    EXPECT_EQ(kinds(collectives(layer, layer.backward)), (std::vector<CollectiveKind>{kReduce, kReduce}));
    for (const Collective& collective : layer.collectives) EXPECT_EQ(collective.bytes, Bytes{67'108'864});
}

// Each half gathers before and scatters after; the backward gathers the output's gradient, gathers the input again for
// the weight gradient, and scatters the input's gradient.
TEST(Collectives, OfSequenceParallelismGatherAndScatter) {
    const LayerScript layer = script_of(split_llama(true), ScriptKind::dense_layer);
    EXPECT_EQ(kinds(collectives(layer, layer.forward)),
              (std::vector<CollectiveKind>{kGather, kScatter, kGather, kScatter}));
    EXPECT_EQ(kinds(collectives(layer, layer.backward)),
              (std::vector<CollectiveKind>{kGather, kGather, kScatter, kGather, kGather, kScatter}));
    for (const Collective& collective : layer.collectives) EXPECT_EQ(collective.bytes, Bytes{67'108'864});
}

// 4096 tokens * 8 experts of h 2048 in bf16, and a routing weight of 4 bytes each; back without weights in forward.
TEST(Collectives, OfExpertsMoveTheChosenTokensBothWays) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.expert_model_parallel_size = 8;
    scenario.parallel.data_parallel_size = 8;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    std::vector<Bytes> forward;
    for (const Collective& collective : collectives(layer, layer.forward))
        if (collective.kind == CollectiveKind::all_to_all) forward.push_back(collective.bytes);
    EXPECT_EQ(forward, (std::vector<Bytes>{Bytes{32'768 * 2048 * 2}, Bytes{32'768 * 4}, Bytes{32'768 * 2048 * 2}}));
    std::vector<Bytes> backward;
    for (const Collective& collective : collectives(layer, layer.backward)) backward.push_back(collective.bytes);
    EXPECT_EQ(backward, (std::vector<Bytes>{Bytes{32'768 * 2048 * 2}, Bytes{32'768 * 2048 * 2}, Bytes{32'768 * 4}}));
}

TEST(Collectives, TheHostWaitsForTheCountsBeforeItDispatches) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.parallel.expert_model_parallel_size = 8;
    scenario.parallel.data_parallel_size = 8;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    int syncs = 0;
    int dispatched = 0;
    for (const Step& step : layer.forward) {
        if (step.kind == StepKind::host_sync) {
            ++syncs;
            EXPECT_EQ(dispatched, 0);
        }
        if (step.kind == StepKind::collective && layer.collectives[step.detail].kind == CollectiveKind::all_to_all)
            ++dispatched;
    }
    EXPECT_EQ(syncs, 1);
}

std::vector<std::string> optimizer_names(const Scenario& scenario, std::int64_t rank) {
    const StageLayers stage = build_megatron_stage(scenario, rank);
    std::vector<std::string> names;
    for (const Collective& collective : collectives(stage.optimizer, stage.optimizer.forward))
        names.push_back(collective.name);
    return names;
}

TEST(Collectives, OfTheOptimizerFollowItsSharding) {
    Scenario scenario = small_gpt();
    scenario.parallel.data_parallel_size = 8;
    EXPECT_EQ(optimizer_names(scenario, 0), (std::vector<std::string>{"gradients.reduce_dense"}));
    scenario.optimizer.use_distributed_optimizer = true;
    const StageLayers stage = build_megatron_stage(scenario, 0);
    const auto list = collectives(stage.optimizer, stage.optimizer.forward);
    EXPECT_EQ(kinds(list), (std::vector<CollectiveKind>{kScatter, kReduce, kGather}));
    EXPECT_EQ(list.front().bytes, Bytes{4 * 64'109'568});
    EXPECT_EQ(list.back().bytes, Bytes{2 * 64'109'568});
}

TEST(Collectives, ATiedEmbeddingsGradientIsSummedOverTheEndsOfThePipeline) {
    Scenario scenario = small_gpt();
    scenario.parallel.pipeline_model_parallel_size = 4;
    const std::vector<std::string> tied{"gradients.reduce_embedding"};
    EXPECT_EQ(optimizer_names(scenario, 0), tied);
    EXPECT_EQ(optimizer_names(scenario, 1), std::vector<std::string>{});
    EXPECT_EQ(optimizer_names(scenario, 3), tied);
    scenario.model.untie_embeddings_and_output_weights = true;
    EXPECT_EQ(optimizer_names(scenario, 0), std::vector<std::string>{});
}

}  // namespace
}  // namespace stowage::layers::testing
