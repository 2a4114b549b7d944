#include "planner/layers/mtp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Scenario predicting(Scenario scenario) {
    scenario.model.num_layers = 2;
    scenario.model.mtp_num_layers = 1;
    return scenario;
}

bool holds(const StageLayers& stage, const std::string& name) {
    const std::vector<Parameter> parameters = stage_parameters(stage);
    return std::any_of(parameters.begin(), parameters.end(),
                       [&](const Parameter& parameter) { return parameter.name == name; });
}

bool reduces_embedding(const StageLayers& stage) {
    return std::any_of(stage.optimizer.collectives.begin(), stage.optimizer.collectives.end(),
                       [](const Collective& collective) { return collective.name == "gradients.reduce_embedding"; });
}

Bytes replayed_peak(const LayerScript& script) {
    Replay replay(script);
    replay.forward();
    replay.backward();
    return replay.peak();
}

TEST(MultiTokenPrediction, LeavesNothingBehindAndUsesNothingFreed) {
    Scenario tensor_parallel = predicting(llama3_70b());
    tensor_parallel.parallel.tensor_model_parallel_size = 8;
    tensor_parallel.parallel.expert_tensor_parallel_size = 8;
    Scenario sequence_parallel = tensor_parallel;
    sequence_parallel.parallel.sequence_parallel = true;
    Scenario learned = predicting(small_gpt());  // one stage: the tied table is the model's
    for (const Scenario& scenario :
         {predicting(llama3_70b()), predicting(qwen3_30b_a3b()), tensor_parallel, sequence_parallel, learned}) {
        const StageLayers stage = build_megatron_stage(scenario, 0);
        Replay replay(stage);
        replay.forward();
        replay.backward();
        EXPECT_TRUE(replay.faults().empty()) << replay.faults().front();
        EXPECT_EQ(replay.live(), Bytes{0}) << replay.alive().front();
    }
}

// Embedding, two layers, prediction, head; prediction opens and closes the groups of one layer more.
TEST(MultiTokenPrediction, RunsBetweenTheLastLayerAndTheHead) {
    const StageLayers stage = build_megatron_stage(predicting(qwen3_30b_a3b()), 0);
    ASSERT_EQ(stage.chunks.front().order.size(), 5U);
    const LayerScript& mtp = stage.scripts[stage.chunks.front().order[3]];
    const LayerScript& layer = stage.scripts[stage.chunks.front().order[2]];
    EXPECT_EQ(mtp.kind, ScriptKind::mtp);
    EXPECT_EQ(tensor_groups(mtp).size(), tensor_groups(layer).size());
    for (std::size_t i = 0; i < tensor_groups(layer).size(); ++i)
        EXPECT_EQ(tensor_groups(mtp)[i].copied, tensor_groups(layer)[i].copied);
}

// A layer of Qwen3-30B: (30,532,122,624 - 2 * 151936 * 2048 - 2048) / 48 = 623,120,640. The projection 4096 * 2048 and
// three norms of 2048 come on top: 631,515,392 in all. They are not in the model's total.
TEST(MultiTokenPrediction, AddsALayerAProjectionAndThreeNorms) {
    Scenario scenario = qwen3_30b_a3b();
    EXPECT_EQ(mtp_parameters(scenario), 0);
    scenario.model.mtp_num_layers = 1;
    EXPECT_EQ((30'532'122'624 - 2 * 151'936LL * 2048 - 2048) / 48, 623'120'640);
    EXPECT_EQ(mtp_parameters(scenario), 623'120'640 + 4096 * 2048 + 3 * 2048);
    EXPECT_EQ(model_parameters(scenario), 30'532'122'624);
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.expert_tensor_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    EXPECT_EQ(mtp_parameters(scenario), 631'515'392);
}

TEST(MultiTokenPrediction, KeepsACopyOfTheTableOnTheLastStage) {
    Scenario scenario = predicting(llama3_70b());
    scenario.parallel.pipeline_model_parallel_size = 2;
    const StageLayers last = build_megatron_stage(scenario, 1);
    EXPECT_TRUE(holds(last, "embedding.word_embeddings.weight"));
    EXPECT_TRUE(holds(last, "output_layer.weight"));
    EXPECT_TRUE(reduces_embedding(last));
    EXPECT_TRUE(reduces_embedding(build_megatron_stage(scenario, 0)));
    scenario.model.mtp_num_layers = 0;
    EXPECT_FALSE(holds(build_megatron_stage(scenario, 1), "embedding.word_embeddings.weight"));
    EXPECT_FALSE(reduces_embedding(build_megatron_stage(scenario, 0)));
}

// Per token and vocabulary entry the head alone holds 6 bytes; with prediction 4 of its softmax beside them. T = 4096,
// V = 128256; hidden states, at most 8 tensors of 2 * 4096 * 8192, are all else that can differ.
TEST(MultiTokenPrediction, HoldsASecondSoftmaxWhileTheLossIsComputed) {
    Scenario scenario = llama3_70b();
    scenario.model.num_layers = 2;
    const Bytes plain = replayed_peak(script_of(scenario, ScriptKind::head));
    scenario.model.mtp_num_layers = 1;
    const Bytes both = replayed_peak(script_of(scenario, ScriptKind::head));
    const double logits = 4096.0 * 128'256;
    EXPECT_NEAR(static_cast<double>((both - plain).count), 4 * logits, 8 * 2 * 4096.0 * 8192);
    EXPECT_GT(static_cast<double>(both.count), 10 * logits);
}

// With sequence parallelism the layer's input is a view of the whole gathered projection: 8 times a rank's part.
TEST(MultiTokenPrediction, KeepsTheWholeGatheredProjection) {
    Scenario scenario = predicting(llama3_70b());
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.expert_tensor_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    const LayerScript mtp = script_of(scenario, ScriptKind::mtp);
    const auto projected = std::find_if(mtp.saved.begin(), mtp.saved.end(), [&](const SavedTensor& saved) {
        return mtp.tensors[index(saved.tensor)].name == "mtp.projected";
    });
    ASSERT_NE(projected, mtp.saved.end());
    EXPECT_EQ(projected->bytes(), Bytes{2 * 4096 / 8 * 8192});
    EXPECT_EQ(mtp.tensors[index(projected->tensor)].bytes(), Bytes{2 * 4096 * 8192});
}

}  // namespace
}  // namespace stowage::layers::testing
