// What stowage's own layers save, cost and hold, and what they refuse.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/stowage/attention_workspace.hpp"
#include "planner/layers/support.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Scenario shipped(const std::string& name) {
    return reader::read_scenario(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/" + name + ".yaml");
}

LayerScript script_of_kind(const Scenario& scenario, ScriptKind kind) {
    for (LayerScript& script : build_stage(scenario, 0).scripts)
        if (script.kind == kind) return std::move(script);
    return {};
}

/// Name and bytes, without the tensors that a norm's statistics and attention's are.
std::vector<std::pair<std::string, std::int64_t>> large_saves(const Scenario& scenario) {
    std::vector<std::pair<std::string, std::int64_t>> saves;
    for (const SavedTensor& saved : script_of_kind(scenario, ScriptKind::dense_layer).saved)
        if (saved.type == DataType::bf16) saves.emplace_back(saved.name, saved.bytes().count);
    return saves;
}

using Saves = std::vector<std::pair<std::string, std::int64_t>>;

// ------------------------------------------------------------------------------------------------------ the peer's
// work

// 8 (4096 (12288 + 4096 + 2 * 14336 + 14336) + 2 * 4096).
TEST(StowageLayers, HaveThePeersParameters) {
    constexpr std::int64_t kParameters = 1'946'222'592;
    const Scenario scenario = shipped("dense-8x4096");
    EXPECT_EQ(model_parameters(scenario), kParameters);
    const StageLayers stage = build_stage(scenario, 0);
    EXPECT_EQ(rank_parameters(stage), kParameters);
    ASSERT_EQ(stage.states.size(), 4U);  // no rotary table
    EXPECT_EQ(stage.states[0].bytes, Bytes{2 * kParameters});
    EXPECT_EQ(stage.states[1].bytes, Bytes{2 * kParameters});  // gradients in bf16
    EXPECT_EQ(stage.states[2].bytes, Bytes{4 * 4});
    EXPECT_EQ(stage.states[3].bytes, Bytes{32 << 20});
}

// Linears: three products of 2 x 1,946,157,056 operations for each of 16384 tokens = 191.3e12. Attention of a layer and
// microbatch: causal half of 4096^2 scores, 32 heads of 128, two products forward and five backward:
// 7 x 2 x 4096^2 / 2 x 32 x 128 = 481e9; 32 of them = 15.4e12.
TEST(StowageLayers, DoThePeersOperations) {
    const Scenario scenario = shipped("dense-8x4096");
    const LayerScript layer = script_of_kind(scenario, ScriptKind::dense_layer);
    double linears = 0;
    double attention = 0;
    for (const Kernel& kernel : layer.kernels) {
        if (kernel.kind == KernelClass::gemm) linears += kernel.flops;
        if (kernel.kind == KernelClass::attention) attention += kernel.flops;
    }
    constexpr double kRuns = 8 * 4;
    EXPECT_DOUBLE_EQ(kRuns * linears, 3.0 * 2 * 1'946'157'056.0 * 16384);
    EXPECT_DOUBLE_EQ(kRuns * attention, 32 * 7.0 * 2 * 4096 * 4096 / 2 * 32 * 128);
    EXPECT_NEAR(kRuns * linears, 191e12, 1.91e12);
    EXPECT_NEAR(kRuns * attention, 15e12, 0.5e12);
}

// 4096 tokens of 4096: 32 MiB a hidden state.
TEST(StowageLayers, SaveEachTensorOnce) {
    constexpr std::int64_t kHidden = 32 << 20;
    EXPECT_EQ(large_saves(shipped("dense-8x4096")), (Saves{{"input", kHidden},
                                                           {"attn_norm.output", kHidden},
                                                           {"qkv", 3 * kHidden},
                                                           {"core_attn.output", kHidden},
                                                           {"residual.attention", kHidden},
                                                           {"mlp_norm.output", kHidden},
                                                           {"mlp_fc1.output", 7 * kHidden}}));
}

// ------------------------------------------------------------------------------------------------------- recomputation

// Bare stack: 640 tokens, h 384, qkv 1008, attention 336, fc1 2000.
TEST(StowageLayers, SaveLessWhatRunsAgain) {
    using M = types::RecomputeModule;
    const auto saves = [](const std::vector<M>& modules) {
        Scenario scenario = bare_stack();
        scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
        scenario.recompute.recompute_modules = modules;
        return large_saves(scenario);
    };
    constexpr std::int64_t kToken = 2 * 640;
    const std::pair<std::string, std::int64_t> input{"input", kToken * 384};
    const std::pair<std::string, std::int64_t> normed{"attn_norm.output", kToken * 384};
    const std::pair<std::string, std::int64_t> qkv{"qkv", kToken * 1008};
    const std::pair<std::string, std::int64_t> output{"core_attn.output", kToken * 336};
    const std::pair<std::string, std::int64_t> middle{"residual.attention", kToken * 384};
    const std::pair<std::string, std::int64_t> normed2{"mlp_norm.output", kToken * 384};
    const std::pair<std::string, std::int64_t> fc1{"mlp_fc1.output", kToken * 2000};
    EXPECT_EQ(saves({}), (Saves{input, normed, qkv, output, middle, normed2, fc1}));
    EXPECT_EQ(saves({M::core_attn}), (Saves{input, normed, qkv, middle, normed2, fc1}));
    EXPECT_EQ(saves({M::mlp}), (Saves{input, normed, qkv, output, middle}));
    EXPECT_EQ(saves({M::layernorm}), (Saves{input, qkv, output, middle, fc1}));
    EXPECT_EQ(saves({M::core_attn, M::mlp, M::layernorm}), (Saves{input, qkv, middle}));
}

// -------------------------------------------------------------------------------------------------------------- groups

// The large tensor of each group is the only one that the default size filter lets move; core_attn also has statistics.
TEST(StowageLayers, HaveAGroupForEachModule) {
    const LayerScript layer = script_of_kind(shipped("dense-8x4096"), ScriptKind::dense_layer);
    constexpr std::int64_t kHidden = 32 << 20;
    constexpr std::int64_t kStatistics = 4 * 32 * 4096;
    const std::vector<std::pair<Module, std::int64_t>> expected{{Module::attn_norm, kHidden},
                                                                {Module::qkv_linear, kHidden},
                                                                {Module::core_attn, 3 * kHidden + kStatistics},
                                                                {Module::attn_proj, kHidden},
                                                                {Module::mlp_norm, kHidden}};
    std::vector<std::pair<Module, std::int64_t>> copied;
    for (const TensorGroup& group : tensor_groups(layer)) {
        copied.emplace_back(group.module, group.copied.count);
        EXPECT_EQ(group.freed, group.copied);
    }
    EXPECT_EQ(copied, expected);
}

// What cuDNN 9.14 asks for on an H200 for 8 heads of 64 in 2 groups and 512 places, and for 32 heads of 128 with keys
// of their own and 4096 places: 1,074,266,368 bytes, 256 of them for counters. The latter is over what the MLP gives
// back: half of the heads at a time.
TEST(StowageLayers, GiveAttentionItsScratchMemory) {
    Dimensions dim;
    dim.micro_batch = 1;
    dim.sequence = 512;
    dim.heads = 8;
    dim.groups = 2;
    dim.head_size = 64;
    EXPECT_EQ(attention_backward_workspace(dim), 5'259'520);
    dim.sequence = 4096;
    dim.heads = dim.groups = 32;
    dim.head_size = 128;
    EXPECT_EQ(attention_backward_workspace(dim), (1'074'266'368 - 256) / 2 + 256);
}

// A graph of the attention has its norm's input as its own, and that of the MLP's norm as its output; a list alone
// captures nothing.
TEST(StowageLayers, LoseNormsToGraphsThatThereAreOnly) {
    Scenario scenario = bare_stack();
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn};
    const auto lost = [&] {
        types::ModuleSet modules;
        for (const types::ModuleSet& one : build_stage(scenario, 0).downgraded)
            for (const Module module : one.list()) modules.insert(module);
        return modules;
    };
    EXPECT_EQ(lost(), types::ModuleSet{});
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    EXPECT_EQ(lost(), (types::ModuleSet{Module::attn_norm, Module::mlp_norm}));
}

// The causal half of 4096 x 4096 scores of 32 heads in bf16, written by one kernel and read by the next.
TEST(StowageLayers, PassTheGradientOfTheScoresThroughMemory) {
    std::vector<Bytes> between;
    for (const Kernel& kernel : script_of_kind(shipped("dense-8x4096"), ScriptKind::dense_layer).kernels)
        if (kernel.kind == KernelClass::attention) between.push_back(kernel.attention.between);
    EXPECT_EQ(between, (std::vector<Bytes>{Bytes{0}, Bytes{2LL * 2 * 32 * 4096 * 4096 / 2}}));
}

// ------------------------------------------------------------------------------------------------------------ the ends

// 1024 rows of 384 each way, logits of 1024 in bf16, one fp32 number a token, and no fp32 logits.
TEST(StowageLayers, KeepNoWideLogits) {
    const LayerScript head = script_of_kind(grouped_gpt(), ScriptKind::head);
    EXPECT_EQ(saved_bytes(head), Bytes{2 * 640 * 384 + 2 * 640 * 384 + 2 * 640 * 1024 + 4 * 640 + 4 * 640 + 4 * 640});
    for (const Tensor& tensor : head.tensors) {
        if (tensor.type == DataType::fp32) {
            EXPECT_LT(tensor.elements(), 640 * 1024) << tensor.name;
        }
    }
}

TEST(StowageLayers, CountEmbeddingAndOutputLayerWithoutPadding) {
    const std::int64_t layer = 384 + 384 * (6 + 4) * 48 + 288 * 384 + 384 + 384 * 3000;
    EXPECT_EQ(model_parameters(grouped_gpt()), 4 * layer + 2 * 1000 * 384 + 384);
    const StageLayers stage = build_stage(grouped_gpt(), 0);
    EXPECT_EQ(rank_parameters(stage), 4 * layer + 2 * 1024 * 384 + 384);
    ASSERT_EQ(stage.states.size(), 5U);
    EXPECT_EQ(stage.states[4].name, "rotary table");
    EXPECT_EQ(stage.states[4].bytes, Bytes{4 * 320 * 24 * 2});
}

TEST(StowageLayers, ReduceGradientsOverReplicas) {
    Scenario scenario = bare_stack();
    EXPECT_TRUE(build_stage(scenario, 0).optimizer.collectives.empty());
    scenario.parallel.data_parallel_size = 2;
    const StageLayers stage = build_stage(scenario, 0);
    ASSERT_EQ(stage.optimizer.collectives.size(), 1U);
    EXPECT_EQ(stage.optimizer.collectives[0].bytes, stage.states[1].bytes);
    EXPECT_EQ(stage.optimizer.collectives[0].group, CommGroup::dense_replicas);
}

// ------------------------------------------------------------------------------------------------------------ refusals

std::string refusal(const Scenario& scenario) {
    try {
        build_stage(scenario, 0);
    } catch (const types::UnsupportedError& error) {
        return error.what();
    }
    return {};
}

TEST(StowageLayers, NameWhatTheyLack) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"a feed-forward width whose share is no multiple of 8",
         [](Scenario& s) { s.parallel.tensor_model_parallel_size = 2; }},
        {"context_parallel_size: 2", [](Scenario& s) { s.parallel.context_parallel_size = 2; }},
        {"sliding windows", [](Scenario& s) { s.model.window_size = 64; }},
        {"norms over all heads at once",
         [](Scenario& s) {
             s.model.qk_layernorm = true;
             s.model.qk_norm_span = types::QkNormSpan::width;
         }},
        {"tied embeddings",
         [](Scenario& s) {
             s = plain_gpt();
             s.model.untie_embeddings_and_output_weights = false;
         }},
        {"position_embedding_type: learned_absolute",
         [](Scenario& s) { s.model.position_embedding_type = types::PositionEmbedding::learned_absolute; }},
        {"heads of size 192", [](Scenario& s) { s.model.kv_channels = 192; }},
        {"rotary positions in heads of size 56",
         [](Scenario& s) { s.model.position_embedding_type = types::PositionEmbedding::rope; }},
        {"hidden_size: 16392", [](Scenario& s) { s.model.hidden_size = 16392; }},
        {"ffn_hidden_size: 1001", [](Scenario& s) { s.model.ffn_hidden_size = 1001; }},
        {"activation squared_relu", [](Scenario& s) { s.model.activation = types::Activation::squared_relu; }},
        {"hidden_dropout", [](Scenario& s) { s.model.hidden_dropout = 0.1; }},
        {"precision: mxfp8", [](Scenario& s) { s.precision = types::Precision::mxfp8; }},
        {"optimizer: sgd", [](Scenario& s) { s.optimizer.optimizer = types::OptimizerKind::sgd; }},
        {"a distributed optimizer none", [](Scenario& s) { s.optimizer.use_distributed_optimizer = true; }},
        {"overlap_grad_reduce: true", [](Scenario& s) { s.optimizer.overlap_grad_reduce = true; }},
        {"recomputation of gdn_norm_out",
         [](Scenario& s) {
             s.recompute.recompute_granularity = types::RecomputeGranularity::selective;
             s.recompute.recompute_modules = {types::RecomputeModule::gdn_norm_out};
         }},
    };
    ASSERT_EQ(refusal(bare_stack()), "");
    for (const auto& [feature, change] : cases) {
        Scenario scenario = bare_stack();
        change(scenario);
        EXPECT_EQ(refusal(scenario), "not supported by the layers of implementation stowage:\n  - " + feature);
    }
}

TEST(StowageLayers, LeaveMegatronWhatIsMegatrons) {
    Scenario scenario = bare_stack();
    scenario.implementation = types::Implementation::megatron;
    EXPECT_EQ(refusal(scenario),
              "not supported by the layers of implementation megatron:\n"
              "  - a model without vocabulary\n"
              "  - optimizer: none");
}

}  // namespace
}  // namespace stowage::layers::testing
