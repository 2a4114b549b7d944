#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using Names = std::vector<std::string>;
using namespace types::literals;

constexpr std::int64_t kMinimum = 1'048'576;  // Megatron's default, in elements

std::map<Module, TensorGroup> groups_of(const LayerScript& script) {
    std::map<Module, TensorGroup> result;
    for (TensorGroup& group : tensor_groups(script)) result.emplace(group.module, group);
    return result;
}

std::int64_t elements(const GroupTensor& tensor) { return tensor.bytes.count / types::size_of(tensor.type); }

/// Bytes of the tensors that Megatron's minimum size lets through.
Bytes copied_above(const TensorGroup& group, std::int64_t minimum) {
    Bytes total;
    for (const GroupTensor& tensor : group.tensors)
        if (elements(tensor) >= minimum) total += tensor.bytes;
    return total;
}

const GroupTensor& tensor_named(const TensorGroup& group, const std::string& name) {
    for (const GroupTensor& tensor : group.tensors)
        if (tensor.name.starts_with(name)) return tensor;
    throw std::invalid_argument(name);
}

std::vector<Module> modules_of(const LayerScript& script, StepKind kind) {
    std::vector<Module> result;
    for (const Step& step : script.forward)
        if (step.kind == kind) result.push_back(step.module);
    return result;
}

TEST(TensorGroups, OpenAndCloseInMegatronsOrder) {
    const LayerScript layer = script_of(qwen3_30b_a3b(), ScriptKind::moe_layer);
    EXPECT_EQ(modules_of(layer, StepKind::start),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::mlp_norm,
                                   Module::expert_fc1, Module::moe_act}));
    EXPECT_EQ(modules_of(layer, StepKind::commit),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj, Module::expert_fc1,
                                   Module::moe_act, Module::mlp_norm}));
}

// A dense layer of the stock specs has its norms fused into linears and no offload module in the feed-forward part.
TEST(TensorGroups, OfADenseLayerAreAttentionsOnly) {
    const LayerScript layer = script_of(llama3_70b(), ScriptKind::dense_layer);
    EXPECT_EQ(modules_of(layer, StepKind::commit),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj}));
}

TEST(TensorGroups, BackwardMirrorsForward) {
    for (const LayerScript& layer :
         {script_of(qwen3_30b_a3b(), ScriptKind::moe_layer), script_of(llama3_70b(), ScriptKind::dense_layer)}) {
        std::vector<std::pair<StepKind, Module>> forward;
        std::vector<std::pair<StepKind, Module>> backward;
        for (const Step& step : layer.forward)
            if (step.kind == StepKind::start || step.kind == StepKind::commit)
                forward.emplace_back(step.kind, step.module);
        for (const Step& step : layer.backward)
            if (step.kind == StepKind::start || step.kind == StepKind::commit)
                backward.insert(backward.begin(), {step.kind, step.module});
        EXPECT_EQ(forward, backward);
    }
}

// Saved tensors of a group are read between the group's commit and its start, when they are on the device.
TEST(TensorGroups, AreReadInsideTheirBackward) {
    for (const LayerScript& layer :
         {script_of(qwen3_30b_a3b(), ScriptKind::moe_layer), script_of(small_moe(), ScriptKind::moe_layer),
          script_of(llama3_70b(), ScriptKind::dense_layer)}) {
        types::ModuleSet open;
        for (const Step& step : layer.backward) {
            if (step.kind == StepKind::commit) open.insert(step.module);
            if (step.kind == StepKind::start) open.erase(step.module);
            if (step.kind != StepKind::read && step.kind != StepKind::forget) continue;
            const SavedTensor& saved = layer.saved[index(step.saved)];
            if (saved.group) {
                EXPECT_TRUE(open.contains(*saved.group)) << saved.name;
            }
        }
    }
}

// s 4096, b 1, 64 heads, 4 groups, k 128: query 4096*64*128*2 = 64 MiB, output the same; key and value 4096*4*128*2 =
// 4 MiB, 2,097,152 elements, above the minimum; statistics 64 * 4096 = 262,144 elements, below it. Together 136 MiB.
TEST(TensorGroups, CoreAttentionOfGroupedQueriesCopies136MiB) {
    const auto groups = groups_of(script_of(qwen3_235b_a22b(), ScriptKind::moe_layer));
    const TensorGroup& core = groups.at(Module::core_attn);
    EXPECT_EQ(tensor_named(core, "query").bytes, 64_MiB);
    EXPECT_EQ(tensor_named(core, "key").bytes, 4_MiB);
    EXPECT_EQ(tensor_named(core, "value").bytes, 4_MiB);
    EXPECT_EQ(tensor_named(core, "core_attn.output").bytes, 64_MiB);
    EXPECT_EQ(elements(tensor_named(core, "core_attn.softmax_statistics")), 262'144);
    EXPECT_EQ(copied_above(core, kMinimum), 136_MiB);
}

// The projection saves attention's output again: core_attn copies it and cannot free it, attn_proj's release does.
TEST(TensorGroups, AttentionsOutputIsCopiedTwiceAndFreedByTheProjection) {
    const auto groups = groups_of(script_of(qwen3_235b_a22b(), ScriptKind::moe_layer));
    const TensorGroup& core = groups.at(Module::core_attn);
    EXPECT_TRUE(tensor_named(core, "core_attn.output").held_elsewhere);
    EXPECT_EQ(core.freed, core.copied - 64_MiB);
    EXPECT_EQ(groups.at(Module::attn_proj).copied, 64_MiB);
    EXPECT_EQ(groups.at(Module::attn_proj).freed, 64_MiB);
}

// The packed qkv output, 72 MiB at these sizes, is emptied with the group though autograd does not hold it.
TEST(TensorGroups, CoreAttentionReleasesThePackedProjection) {
    const LayerScript layer = script_of(qwen3_235b_a22b(), ScriptKind::moe_layer);
    Names released;
    for (const Step& step : layer.forward)
        if (step.kind == StepKind::commit && step.module == Module::core_attn)
            for (Slot slot : layer.releases[step.detail]) released.push_back(layer.tensors[index(slot)].name);
    EXPECT_EQ(released, (Names{"query.rotated", "key.rotated", "qkv_linear.output"}));
    for (const Tensor& tensor : layer.tensors) {
        if (tensor.name == "qkv_linear.output") {
            EXPECT_EQ(tensor.bytes(), 72_MiB);
        }
    }
}

// Without rotary embedding and with one head a group the three are views of one buffer, each gathered for its copy.
TEST(TensorGroups, ViewsOfThePackedProjectionAreGathered) {
    const auto groups = groups_of(script_of(small_gpt(), ScriptKind::dense_layer));
    const TensorGroup& core = groups.at(Module::core_attn);
    for (const char* name : {"query", "key", "value"}) {
        EXPECT_EQ(tensor_named(core, name).form, CopyForm::gathered);
        EXPECT_EQ(tensor_named(core, name).bytes, Bytes{4096 * 512 * 2});
    }
}

// The linear's group holds the norm's input and output, the norm's statistics, and the inputs of the norms over heads.
TEST(TensorGroups, QkvLinearHoldsPreNormInputAndNormedInput) {
    const auto dense = groups_of(script_of(llama3_70b(), ScriptKind::dense_layer));
    EXPECT_EQ(copied_above(dense.at(Module::qkv_linear), kMinimum), Bytes{2 * 2 * 4096 * 8192});
    const auto normed = groups_of(script_of(qwen3_30b_a3b(), ScriptKind::moe_layer));
    EXPECT_EQ(copied_above(normed.at(Module::qkv_linear), kMinimum), Bytes{2 * 2 * 4096 * 2048 + 2 * 4096 * 36 * 128});
}

// s 8192, one key/value head per rank, k 128: 1,048,576 elements reach the minimum; s 8191 does not. Statistics of 128
// heads a rank: 128 * 8192 = 1,048,576 reach it, 128 * 4096 do not.
TEST(TensorGroups, ReachTheMinimumSizeExactly) {
    Scenario scenario = llama3_70b();
    scenario.parallel.tensor_model_parallel_size = 8;
    for (const auto& [sequence, count] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{8192, kMinimum}, {8191, kMinimum - 128}}) {
        scenario.batch.seq_length = sequence;
        const auto groups = groups_of(script_of(scenario, ScriptKind::dense_layer));
        EXPECT_EQ(elements(tensor_named(groups.at(Module::core_attn), "key")), count);
    }
    scenario.parallel.tensor_model_parallel_size = 1;
    scenario.model.num_attention_heads = 128;
    for (const std::int64_t sequence : {4096, 8192}) {
        scenario.batch.seq_length = sequence;
        const auto groups = groups_of(script_of(scenario, ScriptKind::dense_layer));
        EXPECT_EQ(elements(tensor_named(groups.at(Module::core_attn), "core_attn.softmax_statistics")), 128 * sequence);
    }
}

// h 1024, top 2, 2048 tokens: 4096 rows. Expert input 4096 * 1024 * 2 = 8 MiB; fc1 output without a gate 4096 * 4096 *
// 2 = 32 MiB and routing weights 4096 * 4 bytes; norm input 2048 * 1024 * 2 = 4 MiB.
TEST(TensorGroups, OfAnUngatedMoeLayer) {
    const auto groups = groups_of(script_of(small_moe(), ScriptKind::moe_layer));
    EXPECT_EQ(groups.at(Module::expert_fc1).copied, 8_MiB);
    EXPECT_EQ(groups.at(Module::moe_act).copied, 32_MiB + Bytes{4096 * 4});
    EXPECT_EQ(copied_above(groups.at(Module::mlp_norm), 4096), 4_MiB);
    for (Module module : {Module::expert_fc1, Module::moe_act, Module::mlp_norm})
        EXPECT_EQ(groups.at(module).freed, groups.at(module).copied);
}

// s 4096, TP2 with sequence parallelism, EP4, top 4, 32 experts of gated width 1024, h 1024: 2048 tokens a rank, 8192
// rows after dispatch. Norm 4 MiB, expert input 16 MiB, fc1 output 8192 * 2048 * 2 = 32 MiB; 32 heads of 128 give the
// projection 4096 * 16 * 128 * 2 = 16 MiB.
TEST(TensorGroups, OfSplitLayersUseTheRanksShare) {
    Scenario scenario = small_moe();
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 8, .seq_length = 4096};
    scenario.model.activation = types::Activation::swiglu;
    scenario.model.num_attention_heads = 32;
    scenario.model.num_query_groups = 32;
    scenario.model.num_experts = 32;
    scenario.model.moe_router_topk = 4;
    scenario.model.moe_ffn_hidden_size = 1024;
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.parallel.data_parallel_size = 2;
    const auto groups = groups_of(script_of(scenario, ScriptKind::moe_layer));
    EXPECT_EQ(copied_above(groups.at(Module::mlp_norm), kMinimum), 4_MiB);
    EXPECT_EQ(copied_above(groups.at(Module::attn_proj), kMinimum), 16_MiB);
    EXPECT_EQ(copied_above(groups.at(Module::expert_fc1), kMinimum), 16_MiB);
    EXPECT_EQ(copied_above(groups.at(Module::moe_act), kMinimum), 32_MiB);
}

}  // namespace
}  // namespace stowage::layers::testing
