// What stowage's own layers with multi-latent attention save, cost and hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/layers/stowage/attention_workspace.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::RecomputeModule;
using types::Scenario;
using Saves = std::vector<std::pair<std::string, std::int64_t>>;

/// Rows of 640 tokens.
constexpr std::int64_t kToken = 2 * 640;

LayerScript dense_layer(const Scenario& scenario) {
    for (LayerScript& script : build_stage(scenario, 0).scripts)
        if (script.kind == ScriptKind::dense_layer) return std::move(script);
    return {};
}

Scenario recomputing(std::vector<RecomputeModule> modules) {
    Scenario scenario = latent_gpt();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = std::move(modules);
    return scenario;
}

/// Name and bytes of what attention saves in bf16.
Saves saves_of_attention(const Scenario& scenario) {
    Saves saves;
    for (const SavedTensor& saved : dense_layer(scenario).saved) {
        if (saved.name == "residual.attention") break;
        if (saved.type == DataType::bf16) saves.emplace_back(saved.name, saved.bytes().count);
    }
    return saves;
}

std::vector<std::pair<std::string, std::int64_t>> parameters_of(const LayerScript& script) {
    std::vector<std::pair<std::string, std::int64_t>> parameters;
    for (const Parameter& parameter : script.parameters) parameters.emplace_back(parameter.name, parameter.elements());
    std::sort(parameters.begin(), parameters.end());
    return parameters;
}

Scenario deepseek(types::Implementation implementation) {
    Scenario scenario =
        reader::read_scenario(std::string(STOWAGE_SOURCE_DIR) + "/scenarios/deepseek-v3-pp16-ep64-slice.yaml");
    scenario.implementation = implementation;
    return scenario;
}

// ---------------------------------------------------------------------------------------------------------- parameters

TEST(StowageLatent, HasMegatronsParameters) {
    const auto own = parameters_of(dense_layer(deepseek(types::Implementation::stowage)));
    const auto megatron = parameters_of(dense_layer(deepseek(types::Implementation::megatron)));
    EXPECT_FALSE(own.empty());
    const auto attention = [](const auto& all) {
        Saves found;
        for (const auto& parameter : all)
            if (!parameter.first.starts_with("mlp")) found.push_back(parameter);
        return found;
    };
    EXPECT_EQ(attention(own), attention(megatron));
    std::int64_t sums[2] = {0, 0};
    for (const auto& parameter : own) sums[0] += parameter.second;
    for (const auto& parameter : megatron) sums[1] += parameter.second;
    EXPECT_EQ(sums[0], sums[1]);
}

// The model without its multi-token-prediction layer, as its publishers count it, without 58 x 256 numbers of expert
// bias, which are no parameters.
TEST(StowageLatent, CountsTheModelAsItsPublishersDo) {
    EXPECT_EQ(model_parameters(deepseek(types::Implementation::stowage)), 671'026'404'352);
}

// --------------------------------------------------------------------------------------------------------------- saves

// h 384, compressed query 136, compressed keys and values 88 with 16 turned columns beside them, 6 heads of 56 (16 of
// them turned) with values of 32: packed rows of 6 x (56 + 56 + 32).
TEST(StowageLatent, SavesCompressedRowsAndThePackedTensor) {
    EXPECT_EQ(saves_of_attention(latent_gpt()), (Saves{{"input", kToken * 384},
                                                       {"attn_norm.output", kToken * 384},
                                                       {"q_down.output", kToken * 136},
                                                       {"q_latent_norm.output", kToken * 136},
                                                       {"kv_down.output", kToken * 104},
                                                       {"kv_latent_norm.output", kToken * 88},
                                                       {"qkv", kToken * 864},
                                                       {"core_attn.output", kToken * 192}}));
}

TEST(StowageLatent, SavesCompressedRowsAloneWhereTheRestRunsAgain) {
    using M = RecomputeModule;
    const std::pair<std::string, std::int64_t> input{"input", kToken * 384};
    const std::pair<std::string, std::int64_t> normed{"attn_norm.output", kToken * 384};
    const std::pair<std::string, std::int64_t> query{"q_down.output", kToken * 136};
    const std::pair<std::string, std::int64_t> key_value{"kv_down.output", kToken * 104};
    const std::pair<std::string, std::int64_t> output{"core_attn.output", kToken * 192};
    EXPECT_EQ(saves_of_attention(recomputing({M::mla_up_proj})), (Saves{input, normed, query, key_value, output}));
    EXPECT_EQ(saves_of_attention(recomputing({M::mla_up_proj, M::layernorm})),
              (Saves{input, query, key_value, output}));
    EXPECT_EQ(saves_of_attention(recomputing({M::mla_up_proj, M::layernorm, M::core_attn})),
              (Saves{input, query, key_value}));
    Scenario uncompressed = recomputing({M::mla_up_proj});
    uncompressed.model.q_lora_rank = 0;
    EXPECT_EQ(saves_of_attention(uncompressed),
              (Saves{input, normed, {"q_proj.output", kToken * 336}, key_value, output}));
}

// Statistics of 6 heads in fp32 are in core_attn. What attention's backward begins with must lie in its own group.
TEST(StowageLatent, HasTheGroupsThatMegatronNames) {
    const auto copied = [](const Scenario& scenario) {
        std::map<Module, std::int64_t> groups;
        for (const TensorGroup& group : tensor_groups(dense_layer(scenario))) {
            groups[group.module] = group.copied.count;
            EXPECT_EQ(group.freed, group.copied);
        }
        return groups;
    };
    constexpr std::int64_t kStatistics = 4 * 640 * 6;
    const std::map<Module, std::int64_t> plain = copied(latent_gpt());
    EXPECT_EQ(plain.at(Module::attn_norm), kToken * 384);
    EXPECT_EQ(plain.at(Module::qkv_linear), kToken * (384 + 136 + 136 + 104 + 88));
    EXPECT_EQ(plain.at(Module::core_attn), kToken * 864 + kStatistics);
    EXPECT_EQ(plain.at(Module::attn_proj), kToken * 192);
    const std::map<Module, std::int64_t> again = copied(recomputing({RecomputeModule::mla_up_proj}));
    EXPECT_EQ(again.at(Module::qkv_linear), kToken * 384);
    EXPECT_EQ(again.at(Module::core_attn), kToken * (136 + 104) + kStatistics);
    EXPECT_FALSE(
        copied(recomputing({RecomputeModule::mla_up_proj, RecomputeModule::layernorm})).contains(Module::qkv_linear));
}

// ---------------------------------------------------------------------------------------------------------------- work

// Causal half of 320^2 scores of 2 x 6 heads. Forward: 56 + 32 columns of a product; backward: scores again and the
// gradients of query and key with 56 columns, those of the weights and of the value with 32.
TEST(StowageLatent, CountsBothSizesOfAHead) {
    std::vector<double> flops;
    for (const Kernel& kernel : dense_layer(latent_gpt()).kernels) {
        if (kernel.kind != KernelClass::attention) continue;
        flops.push_back(kernel.flops);
        EXPECT_DOUBLE_EQ(kernel.attention.head_size, 44);
        EXPECT_EQ(kernel.call.sizes.value_size, 32);
    }
    constexpr double kPairs = 2.0 * 2 * 6 * 320 * 320 / 2;
    EXPECT_EQ(flops, (std::vector<double>{kPairs * (56 + 32), kPairs * (3 * 56 + 2 * 32)}));
}

TEST(StowageLatent, RunsProjectionsUpTwiceWhereTheyAreRecomputed) {
    const auto runs = [](const Scenario& scenario) {
        std::map<std::string, int> count;
        for (const Kernel& kernel : dense_layer(scenario).kernels) ++count[kernel.name];
        return count;
    };
    const std::map<std::string, int> once = runs(latent_gpt());
    const std::map<std::string, int> twice = runs(recomputing({RecomputeModule::mla_up_proj}));
    for (const char* name :
         {"q_latent_norm.forward", "q_up.forward", "kv_latent_norm.forward", "kv_up.forward", "latent_pack.forward"}) {
        EXPECT_EQ(once.at(name), 1) << name;
        EXPECT_EQ(twice.at(name), 2) << name;
    }
    for (const char* name : {"q_down.forward", "kv_down.forward", "core_attn.forward", "attn_norm.forward"})
        EXPECT_EQ(twice.at(name), 1) << name;
}

// 320 places of 16 turned columns, a cosine and a sine for each pair.
TEST(StowageLatent, TurnsOnlyTheRotaryColumns) {
    for (const StateBuffer& state : build_stage(latent_gpt(), 0).states) {
        if (state.role == StowageState::rotary_table) {
            EXPECT_EQ(state.bytes, Bytes{4 * 320 * 16});
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ refusals

TEST(StowageLatent, NamesWhatItLacks) {
    const std::vector<std::pair<std::string, std::function<void(Scenario&)>>> cases{
        {"multi-latent attention without qk_layernorm", [](Scenario& s) { s.model.qk_layernorm = false; }},
        {"multi-latent attention with biases", [](Scenario& s) { s.model.add_bias_linear = true; }},
        {"multi-latent attention without rotary positions",
         [](Scenario& s) { s.model.position_embedding_type = types::PositionEmbedding::none; }},
        {"q_lora_rank: 132", [](Scenario& s) { s.model.q_lora_rank = 132; }},
        {"kv_lora_rank: 84", [](Scenario& s) { s.model.kv_lora_rank = 84; }},
        {"qk_pos_emb_head_dim: 24", [](Scenario& s) { s.model.qk_pos_emb_head_dim = 24; }},
        {"qk_head_dim: 248", [](Scenario& s) { s.model.qk_head_dim = 248; }},
        {"v_head_dim: 36", [](Scenario& s) { s.model.v_head_dim = 36; }},
    };
    for (const auto& [feature, change] : cases) {
        Scenario scenario = latent_gpt();
        change(scenario);
        try {
            build_stage(scenario, 0);
            ADD_FAILURE() << feature;
        } catch (const types::UnsupportedError& error) {
            EXPECT_EQ(std::string(error.what()),
                      "not supported by the layers of implementation stowage:\n  - " + feature);
        }
    }
}

}  // namespace
}  // namespace stowage::layers::testing
