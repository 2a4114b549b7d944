// Tensor parallelism of implementation stowage: what crosses ranks, what is saved, and that no parameter is lost.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/layers/dimensions.hpp"
#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

const LayerScript& script_of(const StageLayers& stage, ScriptKind kind) {
    for (const LayerScript& script : stage.scripts)
        if (script.kind == kind) return script;
    throw std::logic_error("no such script");
}

/// By kind, over forward and backward.
std::map<CollectiveKind, int> collectives_of(const LayerScript& script) {
    std::map<CollectiveKind, int> found;
    for (const Collective& collective : script.collectives) {
        EXPECT_EQ(collective.group, CommGroup::tensor);
        ++found[collective.kind];
    }
    return found;
}

int calls_of(const LayerScript& script, Call call) {
    int found = 0;
    for (const Kernel& kernel : script.kernels)
        if (kernel.call.call == call) ++found;
    return found;
}

TEST(StowageTensor, SharesOfTheSequenceAreGatheredAndScattered) {
    const StageLayers stage = build_stage(tensor_slice(8, true), 0);
    const LayerScript& layer = script_of(stage, ScriptKind::dense_layer);
    // Gathered: the inputs of qkv and fc1 in the forward and again for their weight gradients, the gradients of the two
    // outputs. Scattered: both outputs, and the gradients of both inputs.
    EXPECT_EQ(collectives_of(layer),
              (std::map<CollectiveKind, int>{{CollectiveKind::all_gather, 6}, {CollectiveKind::reduce_scatter, 4}}));
    EXPECT_EQ(calls_of(layer, Call::repeat_rows), 6);
    EXPECT_EQ(calls_of(layer, Call::keep_rows), 4);
    EXPECT_EQ(calls_of(layer, Call::add), 2) << "the residuals";
    for (const Collective& collective : layer.collectives)
        EXPECT_EQ(collective.bytes, Bytes{2 * 640 * 384}) << "all tokens of a microbatch, in bf16";
}

TEST(StowageTensor, WithoutThemSumsAreReducedInPlace) {
    const StageLayers stage = build_stage(tensor_slice(8, false), 0);
    const LayerScript& layer = script_of(stage, ScriptKind::dense_layer);
    EXPECT_EQ(collectives_of(layer), (std::map<CollectiveKind, int>{{CollectiveKind::all_reduce, 4}}));
    EXPECT_EQ(calls_of(layer, Call::repeat_rows) + calls_of(layer, Call::keep_rows), 0);
    EXPECT_EQ(calls_of(layer, Call::add), 2);
}

TEST(StowageTensor, OneRankSendsNothingAndFusesTheResiduals) {
    const StageLayers stage = build_stage(tensor_slice(1, true), 0);
    const LayerScript& layer = script_of(stage, ScriptKind::dense_layer);
    EXPECT_TRUE(layer.collectives.empty());
    EXPECT_EQ(calls_of(layer, Call::add), 0);
}

/// Of one rank, h 384, 640 tokens, 8 heads and 8 groups of 48, ffn 1088: inputs and outputs of norms and the fp32
/// numbers of norms by share, the packed tensor, attention's output and statistics and fc1's output by head and column.
TEST(StowageTensor, SavesTheShareOfARank) {
    for (const std::int64_t ranks : {1, 2, 8}) {
        const StageLayers stage = build_stage(tensor_slice(ranks, true), 0);
        const std::int64_t hidden = 2 * 640 * 384;
        const std::int64_t whole = 4 * hidden + 2 * 4 * 640 + 3 * hidden + hidden + 4 * 640 * 8 + 2 * 640 * 2 * 1088;
        EXPECT_EQ(saved_bytes(script_of(stage, ScriptKind::dense_layer)), Bytes{whole / ranks});
    }
}

TEST(StowageTensor, WithoutSharesOfTheSequenceNormsAreSavedWhole) {
    const StageLayers stage = build_stage(tensor_slice(8, false), 0);
    const std::int64_t hidden = 2 * 640 * 384;
    const std::int64_t split = (3 * hidden + hidden + 4 * 640 * 8 + 2 * 640 * 2 * 1088) / 8;
    EXPECT_EQ(saved_bytes(script_of(stage, ScriptKind::dense_layer)), Bytes{4 * hidden + 2 * 4 * 640 + split});
}

/// Over the model's elements and over one rank's.
TEST(StowageTensor, HasTheParametersOfMegatronsLayers) {
    for (const std::int64_t ranks : {1, 2, 8})
        for (const bool sequence : {false, true}) {
            Scenario scenario = tensor_slice(ranks, sequence);
            const StageLayers ours = build_stage(scenario, 0);
            scenario.implementation = types::Implementation::megatron;
            scenario.optimizer.optimizer = types::OptimizerKind::adam;
            const StageLayers megatrons = build_stage(scenario, 0);
            EXPECT_EQ(rank_parameters(ours), rank_parameters(megatrons));
            const auto model_elements = [](const StageLayers& stage) {
                std::int64_t sum = 0;
                for (const std::size_t script : stage.chunks.at(0).order)
                    for (const Parameter& parameter : stage.scripts[script].parameters) sum += parameter.model_elements;
                return sum;
            };
            EXPECT_EQ(model_elements(ours), model_elements(megatrons));
            EXPECT_EQ(model_elements(ours), model_parameters(scenario));
        }
}

TEST(StowageTensor, LossTakesAShareOfTheVocabulary) {
    const StageLayers stage = build_stage(tensor_slice(8, true), 0);
    const LayerScript& head = script_of(stage, ScriptKind::head);
    int losses = 0;
    for (const Kernel& kernel : head.kernels) {
        // 1000 tokens, padded to 8 shares of 128.
        if (kernel.call.call == Call::cross_entropy_forward || kernel.call.call == Call::load_tokens) {
            EXPECT_EQ(kernel.call.sizes.columns, 128);
            ++losses;
        }
    }
    EXPECT_EQ(losses, 2);
    std::vector<std::string> reduced;
    for (const Collective& collective : head.collectives)
        if (collective.kind == CollectiveKind::all_reduce) {
            EXPECT_EQ(collective.bytes, Bytes{4 * 640});
            reduced.push_back(collective.name);
        }
    EXPECT_EQ(reduced, (std::vector<std::string>{"loss.reduce_largest", "loss.reduce_label", "loss.reduce_sum"}));
}

TEST(StowageTensor, GradientsOfNormsAreSummedOverSharesOfTheSequence) {
    const auto partial = [](const StageLayers& stage) {
        std::int64_t bytes = 0;
        for (const Collective& collective : stage.optimizer.collectives)
            if (collective.name == "gradients.reduce_partial") bytes = collective.bytes.count;
        return bytes;
    };
    // Two norms in each of four layers and the last one, 384 elements in bf16.
    EXPECT_EQ(partial(build_stage(tensor_slice(8, true), 0)), (4 * 2 + 1) * 384 * 2);
    EXPECT_EQ(partial(build_stage(tensor_slice(8, false), 0)), 0);
}

}  // namespace
}  // namespace stowage::layers::testing
