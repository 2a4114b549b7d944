#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using namespace types::literals;

constexpr std::int64_t kMinimum = 1'048'576;  // Megatron's default, in elements

std::map<Module, TensorGroup> groups_of(const LayerScript& script) {
    std::map<Module, TensorGroup> result;
    for (TensorGroup& group : tensor_groups(script)) result.emplace(group.module, group);
    return result;
}

std::int64_t elements(const GroupTensor& tensor) { return tensor.bytes.count / types::size_of(tensor.type); }

Bytes copied_above(const TensorGroup& group, std::int64_t minimum) {
    Bytes total;
    for (const GroupTensor& tensor : group.tensors)
        if (elements(tensor) >= minimum) total += tensor.bytes;
    return total;
}

Bytes bytes_of(const TensorGroup& group, const std::string& name) {
    Bytes total;
    for (const GroupTensor& tensor : group.tensors)
        if (tensor.name == name) total += tensor.bytes;
    return total;
}

std::vector<Module> modules_of(const LayerScript& script, StepKind kind) {
    std::vector<Module> result;
    for (const Step& step : script.forward)
        if (step.kind == kind) result.push_back(step.module);
    return result;
}

std::vector<std::string> released_by(const LayerScript& script, Module module) {
    std::vector<std::string> names;
    for (const Step& step : script.forward)
        if (step.kind == StepKind::commit && step.module == module)
            for (Slot slot : script.releases[step.detail]) names.push_back(script.tensors[index(slot)].name);
    return names;
}

std::int64_t attention_parameters(const LayerScript& script) {
    std::int64_t total = 0;
    for (const Parameter& parameter : script.parameters)
        for (const char* part : {"attn_", "q_", "kv_"})
            if (parameter.name.starts_with(part)) total += parameter.model_elements;
    return total;
}

LayerScript dense_layer(const Scenario& scenario) { return script_of(scenario, ScriptKind::dense_layer); }

// The norm before attention is a module: it opens first and closes after the residual sum.
TEST(LatentAttention, OpensAndClosesItsGroupsInMegatronsOrder) {
    const LayerScript layer = dense_layer(deepseek_v3_dense());
    EXPECT_EQ(modules_of(layer, StepKind::start),
              (std::vector<Module>{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj}));
    EXPECT_EQ(modules_of(layer, StepKind::commit),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::attn_norm}));
}

// With experts behind it: each norm's group encloses those of its half.
TEST(LatentAttention, KeepsMegatronsOrderInAMoeLayer) {
    Scenario scenario = deepseek_v3_dense();
    scenario.model.num_experts = 256;
    scenario.model.moe_router_topk = 8;
    scenario.model.moe_ffn_hidden_size = 2048;
    const LayerScript layer = script_of(scenario, ScriptKind::moe_layer);
    EXPECT_EQ(modules_of(layer, StepKind::start),
              (std::vector<Module>{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                                   Module::mlp_norm, Module::expert_fc1, Module::moe_act}));
    EXPECT_EQ(modules_of(layer, StepKind::commit),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::attn_norm,
                                   Module::expert_fc1, Module::moe_act, Module::mlp_norm}));
}

// s 1024, b 2, h 2048: 1024 * 2 * 2048 * 2 = 8 MiB a layer.
TEST(LatentAttention, NormGroupOfMegatronsUnitTestMoves8MiB) {
    Scenario scenario = deepseek_v3_dense();
    scenario.batch.seq_length = 1024;
    scenario.batch.micro_batch_size = 2;
    scenario.model.hidden_size = 2048;
    EXPECT_EQ(copied_above(groups_of(dense_layer(scenario)).at(Module::attn_norm), kMinimum), 8_MiB);
}

// s 4096, b 1, h 7168: the norm's input 4096 * 7168 * 2 = 56 MiB; its statistics stay. Nobody else saves it, so it
// goes.
TEST(LatentAttention, NormGroupMovesTheLayersInput) {
    const LayerScript layer = dense_layer(deepseek_v3_dense());
    const auto groups = groups_of(layer);
    EXPECT_EQ(copied_above(groups.at(Module::attn_norm), kMinimum), 56_MiB);
    EXPECT_EQ(groups.at(Module::attn_norm).freed, groups.at(Module::attn_norm).copied);
    EXPECT_EQ(released_by(layer, Module::attn_norm), std::vector<std::string>{"input"});
}

// 128 heads of 128 + 64 for query and key, of 128 for value and output: 4096 * 128 * 192 * 2 = 192 MiB each, 4096 * 128
// * 128 * 2 = 128 MiB each, 640 MiB in all. The statistics, 128 * 4096 = 524,288 elements, stay. attn_proj copies the
// output again: 768 MiB copied by the two, 640 MiB freed.
TEST(LatentAttention, CoreAttentionCopies640MiBAndWithTheProjection768) {
    const auto groups = groups_of(dense_layer(deepseek_v3_dense()));
    const TensorGroup& core = groups.at(Module::core_attn);
    const TensorGroup& projection = groups.at(Module::attn_proj);
    EXPECT_EQ(bytes_of(core, "q_up.output") + bytes_of(core, "query.rotated"), 192_MiB);
    EXPECT_EQ(bytes_of(core, "key.rotated"), 192_MiB);
    EXPECT_EQ(bytes_of(core, "value.contiguous"), 128_MiB);
    EXPECT_EQ(bytes_of(core, "core_attn.output"), 128_MiB);
    EXPECT_EQ(copied_above(core, kMinimum), 640_MiB);
    EXPECT_EQ(copied_above(projection, kMinimum), 128_MiB);
    const Bytes statistics{4 * 128 * 4096};
    EXPECT_EQ(core.freed + projection.freed - statistics, 640_MiB);
    EXPECT_EQ(core.copied + projection.copied - statistics, 768_MiB);
}

// Both down projections save the normed input: two copies of 56 MiB of one storage. Beside it the latents, before and
// after their norms: query 2 * 4096 * 1536 * 2 = 24 MiB, key-value 2 * 4096 * 512 * 2 = 8 MiB.
TEST(LatentAttention, QkvGroupCopiesTheNormedInputTwiceAndReleasesIt) {
    const LayerScript layer = dense_layer(deepseek_v3_dense());
    const auto groups = groups_of(layer);
    const TensorGroup& qkv = groups.at(Module::qkv_linear);
    EXPECT_EQ(bytes_of(qkv, "attn_norm.output"), 112_MiB);
    EXPECT_EQ(copied_above(qkv, kMinimum), 112_MiB + 24_MiB + 8_MiB);
    EXPECT_EQ(released_by(layer, Module::qkv_linear), std::vector<std::string>{"attn_norm.output"});
}

// q_down 7168 * 1536 = 11,010,048; kv_down 7168 * (512 + 64) = 4,128,768; q_up 1536 * 128 * 192 = 37,748,736; kv_up
// 512 * 128 * 256 = 16,777,216; projection 128 * 128 * 7168 = 117,440,512: 187,105,280, with the latents' norms
// 1536 + 512 = 187,107,328. The norm before attention adds 7168.
TEST(LatentAttention, ParametersOfADeepSeekV3LayerAreThePublishedOnes) {
    const LayerScript layer = dense_layer(deepseek_v3_dense());
    EXPECT_EQ(attention_parameters(layer), 187'107'328 + 7168);
}

// Split by 8: down projections and norms stay whole (11,010,048 + 4,128,768 + 1536 + 512 + 7168), the rest is an
// eighth.
TEST(LatentAttention, DownProjectionsAreWholeOnEveryTensorRank) {
    Scenario scenario = deepseek_v3_dense();
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    const LayerScript layer = dense_layer(scenario);
    EXPECT_EQ(attention_parameters(layer), 187'107'328 + 7168);
    std::int64_t held = 0;
    for (const Parameter& parameter : layer.parameters)
        if (!parameter.name.starts_with("mlp_")) held += parameter.elements();
    EXPECT_EQ(held, 11'010'048 + 4'128'768 + 1536 + 512 + 7168 + (37'748'736 + 16'777'216 + 117'440'512) / 8);
}

// Without a latent the query comes straight from the normed input: 7168 * 128 * 192 = 176,160,768 instead of the two
// projections and the norm; that linear and kv_down hold the input twice as before.
TEST(LatentAttention, QueriesNeedNoLatent) {
    Scenario scenario = deepseek_v3_dense();
    scenario.model.q_lora_rank = 0;
    const LayerScript layer = dense_layer(scenario);
    EXPECT_EQ(attention_parameters(layer), 176'160'768 + 4'128'768 + 16'777'216 + 117'440'512 + 512 + 7168);
    EXPECT_EQ(bytes_of(groups_of(layer).at(Module::qkv_linear), "attn_norm.output"), 112_MiB);
}

// Without norms on the latents there are no normed copies of them either.
TEST(LatentAttention, WithoutNormsOnTheLatentsTheyAreSavedOnce) {
    Scenario scenario = deepseek_v3_dense();
    scenario.model.qk_layernorm = false;
    const LayerScript layer = dense_layer(scenario);
    EXPECT_EQ(attention_parameters(layer), 187'105'280 + 7168);
    EXPECT_EQ(copied_above(groups_of(layer).at(Module::qkv_linear), kMinimum), 112_MiB + 12_MiB + 4_MiB);
}

// Plain tables run the unfused embedding: it saves a sine and a cosine for the query and for the key, 4096 * 64 * 2 =
// 512 KiB each, and otherwise the same bytes.
TEST(LatentAttention, TheUnfusedRotaryEmbeddingSavesItsAngles) {
    Scenario scenario = deepseek_v3_dense();
    const Bytes fused = saved_bytes(dense_layer(scenario));
    scenario.model.rope_type = types::RopeType::rope;
    EXPECT_EQ(saved_bytes(dense_layer(scenario)), fused + 2_MiB);
}

// 2 P a (k + v) with P = 4096^2 / 2, a 128, k 192, v 128 forward, 2 P a (3 k + 2 v) backward; linears 2 T in out.
TEST(LatentAttention, OperationsAreTheClosedForm) {
    const LayerScript layer = dense_layer(deepseek_v3_dense());
    auto parts = flops_by_part(layer);
    const double pairs = 4096.0 * 4096.0 / 2;
    EXPECT_EQ((parts[{Part::core_attn, Phase::forward}]), 2 * pairs * 128 * (192 + 128));
    EXPECT_EQ((parts[{Part::core_attn, Phase::backward}]), 2 * pairs * 128 * (3 * 192 + 2 * 128));
    const double projections = 11'010'048 + 4'128'768 + 37'748'736 + 16'777'216;
    EXPECT_EQ((parts[{Part::qkv_linear, Phase::forward}]), 2 * 4096 * projections);
    EXPECT_EQ((parts[{Part::qkv_linear, Phase::weight_gradient}]), 2 * 4096 * projections);
}

// Under sequence parallelism latents and rotary key are gathered: query latent 4096 * 1536, key-value latent 4096 *
// 512, rotary key 4096 * 64, two bytes each; the down projections talk to nobody.
TEST(LatentAttention, GathersLatentsNotTheInput) {
    Scenario scenario = deepseek_v3_dense();
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    const LayerScript layer = dense_layer(scenario);
    std::map<std::string, std::int64_t> gathered;
    for (const Step& step : layer.forward)
        if (step.kind == StepKind::collective && step.part == Part::qkv_linear)
            gathered[layer.collectives[step.detail].name] = layer.collectives[step.detail].bytes.count;
    EXPECT_EQ(gathered, (std::map<std::string, std::int64_t>{{"q_up.gather", 2 * 4096 * 1536},
                                                             {"kv_up.gather", 2 * 4096 * 512},
                                                             {"rotary_key.gather", 2 * 4096 * 64}}));
}

// Each tensor rank saw its own tokens: what all of them hold whole is summed over them once a step. One layer, fp32:
// down projections, latents' norms, the two norms before attention and MLP, and the final norm.
TEST(LatentAttention, SumsTheGradientsOfWholeWeightsOverTheTensorRanks) {
    Scenario scenario = deepseek_v3_dense();
    scenario.model.num_layers = 1;
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    constexpr std::int64_t kElements = 11'010'048 + 4'128'768 + 1536 + 512 + 3 * 7168;
    Bytes summed;
    for (const Collective& collective : build_megatron_stage(scenario, 0).optimizer.collectives)
        if (collective.name == "gradients.reduce_partial") summed += collective.bytes;
    EXPECT_EQ(summed, Bytes{4 * kElements});
}

}  // namespace
}  // namespace stowage::layers::testing
