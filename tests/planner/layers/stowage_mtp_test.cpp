// Multi-token prediction in stowage's own layers: what it holds, saves, costs, weighs and refuses.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/layer_graphs.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/stage.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using Sizes = std::map<std::string, std::int64_t>;

/// Two sequences of 320 tokens of 384.
constexpr std::int64_t kTokens = 640;
constexpr std::int64_t kHidden = 2 * kTokens * 384;

LayerScript script_of(const StageLayers& stage, ScriptKind kind) {
    for (const LayerScript& script : stage.scripts)
        if (script.kind == kind) return script;
    return {};
}

LayerScript script_of(const Scenario& scenario, ScriptKind kind) { return script_of(build_stage(scenario, 0), kind); }

Scenario staged(std::int64_t stages) {
    Scenario scenario = predicting_gpt();
    scenario.parallel.pipeline_model_parallel_size = stages;
    return scenario;
}

Scenario latent() {
    Scenario scenario = latent_gpt();
    scenario.model.mtp_num_layers = 1;
    return scenario;
}

const Kernel& kernel_named(const LayerScript& script, const std::string& name) {
    for (const Kernel& kernel : script.kernels)
        if (kernel.name == name) return kernel;
    throw std::logic_error("no kernel " + name);
}

// --------------------------------------------------------------------------------------------------------------- place

TEST(StowageMtp, RunsBetweenTheLastLayerAndTheHead) {
    const StageLayers stage = build_stage(predicting_gpt(), 0);
    std::vector<ScriptKind> kinds;
    for (const std::size_t script : stage.chunks.at(0).order) kinds.push_back(stage.scripts[script].kind);
    using K = ScriptKind;
    EXPECT_EQ(kinds, (std::vector<K>{K::embedding, K::dense_layer, K::moe_layer, K::moe_layer, K::moe_layer, K::mtp,
                                     K::head}));
}

TEST(StowageMtp, LeavesNothingBehindAndUsesNothingFreed) {
    for (const Scenario& scenario : {predicting_gpt(), latent()}) {
        const StageLayers stage = build_stage(scenario, 0);
        Replay replay(stage);
        replay.forward();
        replay.backward();
        EXPECT_TRUE(replay.faults().empty()) << replay.faults().front();
        EXPECT_EQ(replay.live(), Bytes{0}) << replay.alive().front();
    }
}

// ---------------------------------------------------------------------------------------------------------- parameters

// A layer of 24 experts, a projection of 768 x 384, three norms more: the model's own is there already.
TEST(StowageMtp, AddsALayerAProjectionAndThreeNorms) {
    const std::int64_t attention = 384 + 384 * (6 + 4) * 48 + 288 * 384;
    const std::int64_t experts = 384 + 24 * 384 + 24 * 3 * 200 * 384 + 3 * 136 * 384;
    EXPECT_EQ(mtp_parameters(predicting_gpt()), attention + experts + 768 * 384 + 3 * 384);
    EXPECT_EQ(model_parameters(predicting_gpt()), model_parameters(moe_gpt()));
    EXPECT_EQ(rank_parameters(build_stage(predicting_gpt(), 0)),
              rank_parameters(build_stage(moe_gpt(), 0)) + mtp_parameters(predicting_gpt()));
}

TEST(StowageMtp, HasMegatronsParameters) {
    for (const std::int64_t stages : {1, 2}) {
        Scenario scenario = staged(stages);
        const auto elements = [stages](const Scenario& of) {
            std::int64_t dense = 0;
            const StageLayers stage = build_stage(of, stages - 1);
            for (const Parameter& parameter : script_of(stage, ScriptKind::mtp).parameters)
                dense += parameter.shared ? 0 : parameter.elements();
            return dense;
        };
        const std::int64_t own = elements(scenario);
        scenario.implementation = types::Implementation::megatron;
        scenario.optimizer.optimizer = types::OptimizerKind::adam;
        EXPECT_EQ(own, elements(scenario)) << stages << " stages";
    }
}

// The table that the prediction looks up in and adds gradients to is the embedding's.
TEST(StowageMtp, SharesTheTableOfItsStage) {
    const StageLayers stage = build_stage(predicting_gpt(), 0);
    const auto& places = stage.parameter_places.at(0);
    const LayerScript mtp = script_of(stage, ScriptKind::mtp);
    ASSERT_EQ(mtp.parameters.at(0).name, "embedding.word_embeddings.weight");
    EXPECT_TRUE(mtp.parameters.at(0).shared);
    EXPECT_EQ(places.at(5).at(0), places.at(0).at(0));
    std::vector<std::int64_t> all;
    for (const auto& frame : places) all.insert(all.end(), frame.begin(), frame.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end() - 1) << "nothing else lies where another does";
}

// 1024 rows of 384 in bf16 gradients, on both ends of the pipeline; a stage between them has no table.
TEST(StowageMtp, KeepsACopyOfTheTableOnTheLastStage) {
    const auto reduced = [](const Scenario& scenario, std::int64_t rank) {
        for (const Collective& collective : build_stage(scenario, rank).optimizer.collectives)
            if (collective.name == "gradients.reduce_embedding") return collective.bytes.count;
        return std::int64_t{0};
    };
    const LayerScript mtp = script_of(build_stage(staged(4), 3), ScriptKind::mtp);
    EXPECT_FALSE(mtp.parameters.at(0).shared);
    EXPECT_EQ(mtp.parameters.at(0).model_elements, 0);
    EXPECT_EQ(reduced(staged(4), 0), 2 * 1024 * 384);
    EXPECT_EQ(reduced(staged(4), 1), 0);
    EXPECT_EQ(reduced(staged(4), 3), 2 * 1024 * 384);
    EXPECT_EQ(reduced(predicting_gpt(), 0), 0);
}

// --------------------------------------------------------------------------------------------------------------- saves

// The layer inside saves what the model's last one does, in the same groups.
TEST(StowageMtp, SavesFourNormsInputsBesideTheLayer) {
    const StageLayers stage = build_stage(predicting_gpt(), 0);
    const LayerScript mtp = script_of(stage, ScriptKind::mtp);
    const LayerScript layer = script_of(stage, ScriptKind::moe_layer);
    std::vector<std::pair<std::string, std::int64_t>> before;
    for (const SavedTensor& saved : mtp.saved) {
        if (saved.name == "mtp.layer_input" || saved.group) break;
        before.emplace_back(saved.name, saved.bytes().count);
    }
    EXPECT_EQ(before, (std::vector<std::pair<std::string, std::int64_t>>{{"input", kHidden},
                                                                         {"final_norm.rstd", 4 * kTokens},
                                                                         {"mtp.tokens", 4 * kTokens},
                                                                         {"mtp.embedding", kHidden},
                                                                         {"mtp.0.enorm.rstd", 4 * kTokens},
                                                                         {"final_norm.output", kHidden},
                                                                         {"mtp.0.hnorm.rstd", 4 * kTokens},
                                                                         {"mtp.side_by_side", 2 * kHidden}}));
    EXPECT_EQ(mtp.saved.size(), before.size() + layer.saved.size() + 2);  // and the last norm's input and statistics
    const std::vector<TensorGroup> groups = tensor_groups(layer);
    ASSERT_EQ(tensor_groups(mtp).size(), groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
        EXPECT_EQ(tensor_groups(mtp)[i].module, groups[i].module);
        EXPECT_EQ(tensor_groups(mtp)[i].copied, groups[i].copied);
        EXPECT_EQ(tensor_groups(mtp)[i].freed, groups[i].freed);
    }
}

// The layer's products and eh_proj's, forward and backward; 6 x 640 x 768 x 384.
TEST(StowageMtp, DoesTheOperationsOfALayerAndAProjection) {
    const auto all = [](const LayerScript& script) {
        double total = 0;
        for (const Kernel& kernel : script.kernels) total += kernel.flops;
        return total;
    };
    const StageLayers stage = build_stage(predicting_gpt(), 0);
    EXPECT_DOUBLE_EQ(all(script_of(stage, ScriptKind::mtp)),
                     all(script_of(stage, ScriptKind::moe_layer)) + 6.0 * 640 * 768 * 384);
    EXPECT_DOUBLE_EQ(all(script_of(stage, ScriptKind::head)),
                     2 * all(script_of(build_stage(moe_gpt(), 0), ScriptKind::head)));
}

// ---------------------------------------------------------------------------------------------------------------- loss

// Rows of the model count 1 / 640 each, those of the prediction 0.3 times that; its labels are one token further on.
TEST(StowageMtp, WeighsTheLossOfThePrediction) {
    Scenario scenario = predicting_gpt();
    scenario.model.mtp_loss_scaling_factor = 0.3;
    const LayerScript head = script_of(scenario, ScriptKind::head);
    EXPECT_EQ(kernel_named(head, "loss.load_labels").call.sizes.depths, 2);
    EXPECT_TRUE(kernel_named(head, "loss.load_labels").call.sizes.shift);
    for (const char* name : {"loss.forward", "loss.backward"}) {
        const CallSizes& sizes = kernel_named(head, name).call.sizes;
        EXPECT_EQ(sizes.rows, 2 * kTokens);
        EXPECT_EQ(sizes.depths, 2);
        EXPECT_DOUBLE_EQ(sizes.value, 1.0 / 640);
        EXPECT_DOUBLE_EQ(sizes.later_value, 0.3 / 640);
    }
    const CallSizes plain = kernel_named(script_of(moe_gpt(), ScriptKind::head), "loss.forward").call.sizes;
    EXPECT_EQ(plain.depths, 0);
    EXPECT_DOUBLE_EQ(plain.value, 1.0 / 640);
    EXPECT_TRUE(kernel_named(script_of(scenario, ScriptKind::mtp), "mtp.load_tokens").call.sizes.shift);
}

// -------------------------------------------------------------------------------------------------------------- graphs

// As in Megatron, the graph is that of the layer inside: it captures as many steps as of a layer of the model.
TEST(StowageMtp, IsCapturedAsALayerOfTheModel) {
    using G = types::CudaGraphModule;
    for (const std::vector<G>& listed : {std::vector{G::attn},
                                         {G::attn, G::moe_router},
                                         {G::attn, G::moe_router, G::moe_preprocess},
                                         {G::moe_router}}) {
        types::CudaGraph graph;
        graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
        graph.cuda_graph_modules = listed;
        const auto steps = [](const StepRange& range) { return range.end - range.begin; };
        const auto mtp = layer_graphs(script_of(predicting_gpt(), ScriptKind::mtp), graph);
        const auto layer = layer_graphs(script_of(predicting_gpt(), ScriptKind::moe_layer), graph);
        ASSERT_TRUE(mtp && layer);
        EXPECT_EQ(steps(mtp->forward), steps(layer->forward)) << listed.size();
        EXPECT_EQ(steps(mtp->backward), steps(layer->backward)) << listed.size();
        EXPECT_EQ(mtp->takes_input, layer->takes_input);
    }
}

// ------------------------------------------------------------------------------------------------------------ refusals

TEST(StowageMtp, NamesWhatItLacks) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"mtp_num_layers: 2", [](Scenario& s) { s.model.mtp_num_layers = 2; }},
        {"multi-token prediction without a vocabulary", [](Scenario& s) { s.model.vocab_size = 0; }},
        {"multi-token prediction under full recomputation",
         [](Scenario& s) {
             s.recompute = {types::RecomputeGranularity::full, types::RecomputeMethod::uniform, 1, {}};
         }},
        {"multi-token prediction in another precision than bf16",
         [](Scenario& s) { s.precision = types::Precision::fp8_tensorwise; }},
        {"multi-token prediction under tensor parallelism",
         [](Scenario& s) {
             s.model.moe_shared_expert_intermediate_size = 0;
             s.model.num_attention_heads = s.model.num_query_groups = 8;
             s.model.ffn_hidden_size = 1088;
             s.parallel.tensor_model_parallel_size = 2;
             s.parallel.sequence_parallel = true;
         }},
    };
    for (const auto& [feature, change] : cases) {
        Scenario scenario = predicting_gpt();
        change(scenario);
        std::string refusal;
        try {
            build_stage(scenario, 0);
        } catch (const types::UnsupportedError& error) {
            refusal = error.what();
        }
        EXPECT_TRUE(refusal.starts_with("not supported by the layers of implementation stowage:\n  - ")) << refusal;
        EXPECT_NE(refusal.find("\n  - " + feature), std::string::npos) << refusal;
    }
}

}  // namespace
}  // namespace stowage::layers::testing
