#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/moe_dispatch.hpp"
#include "planner/layers/support.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

// The feed-forward part with experts: parameters, tokens, what is saved and moved, what the host waits for.

namespace stowage::layers::testing {
namespace {

using types::Scenario;
using types::TokenDispatcher;
using namespace types::literals;

/// A DeepSeek-V3 layer with plain attention instead of MLA: its experts, its width, its shared expert.
Scenario deepseek_v3_experts() {
    Scenario scenario = qwen3_30b_a3b();
    types::Model& model = scenario.model;
    model.hidden_size = 7168;
    model.num_experts = 256;
    model.moe_router_topk = 8;
    model.moe_ffn_hidden_size = 2048;
    model.moe_shared_expert_intermediate_size = 2048;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 64, .seq_length = 4096};
    return scenario;
}

LayerScript moe_of(const Scenario& scenario) { return script_of(scenario, ScriptKind::moe_layer); }

std::vector<const SavedTensor*> saves_named(const LayerScript& layer, const std::string& name) {
    std::vector<const SavedTensor*> result;
    for (const SavedTensor& saved : layer.saved)
        if (saved.name == name) result.push_back(&saved);
    return result;
}

/// Bytes of the saves of one name.
Bytes saved_as(const LayerScript& layer, const std::string& name) {
    Bytes total;
    for (const SavedTensor* saved : saves_named(layer, name)) total += saved->bytes();
    return total;
}

std::map<Module, TensorGroup> groups_of(const LayerScript& script) {
    std::map<Module, TensorGroup> result;
    for (TensorGroup& group : tensor_groups(script)) result.emplace(group.module, group);
    return result;
}

int count(const std::vector<Step>& steps, StepKind kind) {
    return static_cast<int>(
        std::count_if(steps.begin(), steps.end(), [kind](const Step& step) { return step.kind == kind; }));
}

std::int64_t model_elements(const LayerScript& layer, const std::string& part) {
    std::int64_t total = 0;
    for (const Parameter& parameter : layer.parameters)
        if (parameter.name.starts_with(part)) total += parameter.model_elements;
    return total;
}

std::int64_t own_elements(const LayerScript& layer, const std::string& part) {
    std::int64_t total = 0;
    for (const Parameter& parameter : layer.parameters)
        if (parameter.name.starts_with(part)) total += parameter.elements();
    return total;
}

std::int64_t expert_rows(const LayerScript& layer) {
    for (const Tensor& tensor : layer.tensors)
        if (tensor.name == "expert_fc1.output") return tensor.shape[0];
    return 0;
}

Scenario split(Scenario scenario, std::int64_t tensor, std::int64_t expert, std::int64_t expert_tensor,
               std::int64_t data) {
    scenario.parallel.tensor_model_parallel_size = tensor;
    scenario.parallel.sequence_parallel = tensor > 1;
    scenario.parallel.expert_model_parallel_size = expert;
    scenario.parallel.expert_tensor_parallel_size = expert_tensor;
    scenario.parallel.data_parallel_size = data;
    return scenario;
}

// ------------------------------------------------------------------------------------------------------------- tokens

// Rows that a rank's experts work on: topk s b etp / tp, whatever the expert-parallel size and the dispatcher.
TEST(Experts, WorkOnTopkTokensTimesExpertTensorOverTensorRanks) {
    for (const std::int64_t tensor : {1, 2, 4})
        for (const std::int64_t expert_tensor : {1, 2, 4})
            for (const std::int64_t expert : {1, 2, 8, 32})
                for (const auto dispatcher :
                     {TokenDispatcher::alltoall, TokenDispatcher::allgather, TokenDispatcher::flex}) {
                    Scenario scenario = split(qwen3_30b_a3b(), tensor, expert, expert_tensor, 128);
                    scenario.parallel.moe_token_dispatcher_type = dispatcher;
                    if (!unsupported_features(scenario).empty()) continue;  // flex on one rank
                    EXPECT_EQ(expert_rows(moe_of(scenario)), 8 * 4096 * expert_tensor / tensor)
                        << tensor << " " << expert_tensor << " " << expert;
                }
}

// 4096 tokens * 8 experts = 32,768 rows: input 32,768 * 7168 * 2 = 448 MiB; fc1's output 32,768 * 4096 * 2 = 256 MiB
// and a routing weight of 4 bytes a row; norm input 4096 * 7168 * 2 = 56 MiB.
TEST(Experts, OfDeepSeekV3MoveTheirPublishedBytes) {
    for (const std::int64_t expert : {1, 8, 64}) {
        const auto groups = groups_of(moe_of(split(deepseek_v3_experts(), 1, expert, 1, 64)));
        EXPECT_EQ(groups.at(Module::expert_fc1).copied, 448_MiB);
        EXPECT_EQ(groups.at(Module::moe_act).copied, 256_MiB + Bytes{4 * 32'768});
        EXPECT_EQ(groups.at(Module::mlp_norm).copied, 56_MiB + Bytes{4 * 4096});
    }
}

// With recomputation of norms and activations, as Megatron's unit test has it: 8 layers of which one stays on the
// device. Norm 7 * 4 MiB = 28, expert input 7 * 8 = 56, fc1's output 7 * 32 = 224 MiB and 7 * 4096 * 4 bytes of
// weights; statistics are not saved.
TEST(Experts, OfTheUnitTestMoveItsBytes) {
    Scenario scenario = small_moe();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm, types::RecomputeModule::moe_act};
    const auto groups = groups_of(moe_of(scenario));
    const auto seven = [&](Module module) { return 7 * groups.at(module).copied.count; };
    EXPECT_EQ(seven(Module::mlp_norm), (28_MiB).count);
    EXPECT_EQ(seven(Module::expert_fc1), (56_MiB).count);
    EXPECT_EQ(seven(Module::moe_act), (224_MiB).count + 7 * 4096 * 4);
}

// Capacity of one expert for one rank: ceil(4096 * 8 / 128 * factor) = ceil(256 * 1.3) = 333; each of 128 experts gets
// it from each rank whether it is filled or not: 128 * 333 = 42,624 rows, and nothing is left for the host to wait for.
TEST(Experts, PaddedToACapacityHaveFixedRowsAndNoHostWait) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 8, 1, 8);
    EXPECT_EQ(count(moe_of(scenario).forward, StepKind::host_sync), 1);
    scenario.model.moe_expert_capacity_factor = 1.3;
    scenario.model.moe_pad_expert_input_to_capacity = true;
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 2;
    const LayerScript layer = moe_of(scenario);
    EXPECT_EQ(expert_rows(layer), 128 * 333);
    EXPECT_EQ(count(layer.forward, StepKind::host_sync), 0);
    for (const Collective& collective : layer.collectives) EXPECT_EQ(collective.kind, CollectiveKind::all_to_all);
}

// Without padding a capacity takes away what is over it: 0.5 * 256 = 128 rows of each of 128 experts are left of
// 32,768; a factor of 2 takes nothing from balanced tokens, and 16 experts' 8 * 512 rows bound the most loaded rank.
TEST(Experts, OverTheirCapacityDropTokensAndTheHostStillWaits) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 8, 1, 8);
    scenario.model.moe_expert_capacity_factor = 0.5;
    EXPECT_EQ(expert_rows(moe_of(scenario)), 16'384);
    EXPECT_EQ(count(moe_of(scenario).forward, StepKind::host_sync), 1);
    scenario.model.moe_expert_capacity_factor = 2;
    EXPECT_EQ(expert_rows(moe_of(scenario)), 32'768);
    scenario.batch.routing = types::Routing::skewed;
    scenario.batch.routing_skew = 3;
    EXPECT_EQ(expert_rows(moe_of(scenario)), 16 * 8 * 512);
}

// --------------------------------------------------------------------------------------------------------- parameters

// Shared expert of width 2048 at h 7168, gated: 3 * 2048 * 7168, split over the tensor ranks only; the gate's 7168 is
// held by every rank.
TEST(Experts, SharedOnesAreSplitOverTensorRanks) {
    Scenario scenario = split(deepseek_v3_experts(), 4, 8, 1, 64);
    scenario.model.moe_shared_expert_gate = true;
    const LayerScript layer = moe_of(scenario);
    EXPECT_EQ(model_elements(layer, "shared_expert.fc"), 3 * 2048 * 7168);
    EXPECT_EQ(own_elements(layer, "shared_expert.fc"), 3 * 2048 * 7168 / 4);
    EXPECT_EQ(own_elements(layer, "shared_expert.gate"), 7168);
    EXPECT_EQ(model_elements(layer, "shared_expert.gate"), 7168);
}

// Latent width 1024 at h 4096, 512 experts of width 2688, squared ReLU: experts 512 * 2 * 2688 * 1024, two projections
// 4096 * 1024 that every rank holds whole; the router still reads h.
TEST(Experts, OfALatentWidthAreThatMuchSmaller) {
    Scenario scenario = split(qwen3_235b_a22b(), 2, 8, 1, 8);
    scenario.model.activation = types::Activation::squared_relu;
    scenario.model.num_experts = 512;
    scenario.model.moe_router_topk = 22;
    scenario.model.moe_ffn_hidden_size = 2688;
    scenario.model.moe_latent_size = 1024;
    const LayerScript layer = moe_of(scenario);
    EXPECT_EQ(model_elements(layer, "expert_fc"), 512LL * 2 * 2688 * 1024);
    EXPECT_EQ(model_elements(layer, "latent_fc"), 2 * 4096 * 1024);
    EXPECT_EQ(own_elements(layer, "latent_fc"), 2 * 4096 * 1024);
    EXPECT_EQ(own_elements(layer, "router"), 512 * 4096);
    // 4096 / 2 tokens * 22 rows of 1024 in bf16.
    EXPECT_EQ(groups_of(layer).at(Module::expert_fc1).copied, Bytes{2048 * 22 * 1024 * 2});
}

// gpt-oss: h 2880, 128 experts of gated width 2880 with a bias each; fc1's biases are split over expert tensor ranks,
// fc2's are not; the router has one as well.
TEST(Experts, HaveBiases) {
    Scenario scenario = split(qwen3_30b_a3b(), 2, 4, 2, 8);
    scenario.model.hidden_size = 2880;
    scenario.model.moe_ffn_hidden_size = 2880;
    scenario.model.add_bias_linear = true;
    scenario.model.activation = types::Activation::quick_geglu;
    const LayerScript layer = moe_of(scenario);
    EXPECT_EQ(model_elements(layer, "expert_fc1.bias"), 128 * 2 * 2880);
    EXPECT_EQ(own_elements(layer, "expert_fc1.bias"), 32 * 2880);
    EXPECT_EQ(model_elements(layer, "expert_fc2.bias"), 128 * 2880);
    EXPECT_EQ(own_elements(layer, "expert_fc2.bias"), 32 * 2880);
    EXPECT_EQ(own_elements(layer, "router.bias"), 128);
}

// One token to 8 of 128 experts: some expert has a row, the mean is none. The products of the bias' gradient are those
// of an expert that has.
TEST(Experts, HaveBiasesWhereFewOfThemHaveTokens) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.model.add_bias_linear = true;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 1, .seq_length = 1};
    for (const Tensor& tensor : moe_of(scenario).tensors) EXPECT_GT(tensor.bytes(), Bytes{0}) << tensor.name;
}

// -------------------------------------------------------------------------------------------------------------- saved

// T = 4096, width 2048: fc1's output 2 T 4096, the activation's 2 T 2048; the normed tokens are the router's save. With
// a gate: fc2's output 2 T h and one score of 2 bytes a token.
TEST(Experts, SharedOnesSaveTheirActivations) {
    Scenario scenario = deepseek_v3_experts();
    scenario.model.moe_shared_expert_intermediate_size = 0;
    const Bytes without = saved_bytes(moe_of(scenario));
    scenario.model.moe_shared_expert_intermediate_size = 2048;
    EXPECT_EQ(saved_bytes(moe_of(scenario)) - without, Bytes{2 * 4096 * 3 * 2048});
    scenario.model.moe_shared_expert_gate = true;
    EXPECT_EQ(saved_bytes(moe_of(scenario)) - without, Bytes{2 * 4096 * 3 * 2048 + 2 * 4096 * 7168 + 2 * 4096});
}

// Overlapped, the tokens are gathered outside the linear: fc1 saves all of them, 2 * 4096 * 7168, on each of 4 ranks.
TEST(Experts, SharedOnesThatOverlapSaveTheGatheredTokens) {
    Scenario scenario = split(deepseek_v3_experts(), 4, 8, 1, 64);
    const Bytes apart = saved_bytes(moe_of(scenario));
    scenario.parallel.moe_shared_expert_overlap = true;
    EXPECT_EQ(saved_bytes(moe_of(scenario)) - apart, Bytes{2 * 4096 * 7168});
}

// Between the all-to-all's launch and the wait for it lies the shared expert's first half, in both directions.
TEST(Experts, SharedOnesThatOverlapRunBesideTheAllToAll) {
    Scenario scenario = split(deepseek_v3_experts(), 1, 8, 1, 64);
    scenario.parallel.moe_shared_expert_overlap = true;
    const LayerScript layer = moe_of(scenario);
    for (const auto* steps : {&layer.forward, &layer.backward}) {
        int hidden = 0;
        bool in_flight = false;
        for (const Step& step : *steps) {
            if (step.kind == StepKind::collective &&
                layer.collectives[step.detail].kind == CollectiveKind::all_to_all) {
                EXPECT_FALSE(layer.collectives[step.detail].blocks_main);
                in_flight = true;
            }
            if (step.kind == StepKind::join_collectives) in_flight = false;
            const bool gemm = step.kind == StepKind::kernel && layer.kernels[step.detail].flops > 0;
            if (in_flight && gemm) {
                EXPECT_EQ(step.part, Part::shared_expert);
                ++hidden;
            }
        }
        EXPECT_EQ(hidden, steps == &layer.forward ? 2 : 4);  // fc1, fc2; of each a dgrad and a wgrad
    }
}

// Squared ReLU has one kernel with the weights in it: input and weights are saved, not the activation before them.
TEST(Experts, OfSquaredReluSaveNoUnweightedActivation) {
    Scenario scenario = small_moe();
    const LayerScript gelu = moe_of(scenario);
    scenario.model.activation = types::Activation::squared_relu;
    const LayerScript relu = moe_of(scenario);
    EXPECT_EQ(saved_as(gelu, "moe_act.output"), 32_MiB);  // 4096 rows of width 4096, before the weights
    EXPECT_EQ(saved_bytes(gelu) - saved_bytes(relu), 32_MiB);
}

// quick_geglu is gated as swiglu is: the same tensors.
TEST(Experts, OfQuickGegluSaveWhatSwigluSaves) {
    for (Scenario scenario : {qwen3_30b_a3b(), llama3_70b()}) {
        const ScriptKind kind = scenario.model.has_experts() ? ScriptKind::moe_layer : ScriptKind::dense_layer;
        const Bytes swiglu = saved_bytes(script_of(scenario, kind));
        scenario.model.activation = types::Activation::quick_geglu;
        EXPECT_EQ(saved_bytes(script_of(scenario, kind)), swiglu);
    }
}

// A dense layer with squared ReLU is not gated: fc1's output and the activation's, 2 T (F + F).
TEST(Experts, ADenseLayerWithSquaredReluSavesTwoWidths) {
    Scenario scenario = llama3_70b();
    const Bytes gated = saved_bytes(script_of(scenario, ScriptKind::dense_layer));
    scenario.model.activation = types::Activation::squared_relu;
    EXPECT_EQ(gated - saved_bytes(script_of(scenario, ScriptKind::dense_layer)), Bytes{2 * 4096 * 28'672});
}

// -------------------------------------------------------------------------------------------------------- dispatchers

// EP8: the gathered tokens lie in the global memory buffer, not in a tensor of the layer. Saved beside the indices of
// the 32,768 rows: 16 local experts' probabilities and map for 32,768 tokens, 5 bytes each; as many as the all-to-all's
// 128 experts for 4096 tokens.
TEST(Experts, GatheredTokensLieInTheMemoryBuffer) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 8, 1, 8);
    const Bytes sent = saved_bytes(moe_of(scenario));
    scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::allgather;
    const LayerScript layer = moe_of(scenario);
    EXPECT_EQ(saved_as(layer, "dispatch.local_probabilities") + saved_as(layer, "dispatch.local_map"),
              Bytes{32'768 * 16 * 5});
    EXPECT_EQ(saved_bytes(layer), sent);
    for (const Collective& collective : layer.collectives)
        EXPECT_NE(collective.kind, CollectiveKind::all_to_all) << collective.name;
    EXPECT_EQ(count(layer.forward, StepKind::host_sync), 1);
}

// One fused call each way in place of all-to-all, gather and sort: rows and their weights together. The handle is a
// byte for each of 32,768 tokens and 16 local experts and 4 bytes a token, instead of 8 bytes for each of 32,768 rows.
TEST(Experts, OfTheFlexDispatcherHaveOneCallEachWay) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 8, 1, 8);
    const Bytes sent = saved_bytes(moe_of(scenario));
    scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::flex;
    const LayerScript layer = moe_of(scenario);
    std::vector<Bytes> calls;
    for (const Collective& collective : layer.collectives)
        if (collective.kind == CollectiveKind::all_to_all) calls.push_back(collective.bytes);
    const Bytes rows{32'768 * 2048 * 2};
    EXPECT_EQ(calls, (std::vector<Bytes>{rows + Bytes{4 * 32'768}, rows, rows, rows + Bytes{4 * 32'768}}));
    EXPECT_EQ((saved_bytes(layer) - sent).count, 32'768 * (16 + 4) - 32'768 * 8 - 4096 * 128 * 5);
    EXPECT_EQ(count(layer.forward, StepKind::host_sync), 1);
}

// 32,768 tokens of the group: rows of 2 * 2048 bytes and 4 bytes for each of the 16 * 8 experts of a node. Over two
// nodes of 8, EP16 with 8 local experts: 65,536 tokens, 8 * 8 experts, and a rank's own 4096 rows for the other node.
TEST(Experts, OfTheFlexDispatcherTakeRoomForAllTokensOfTheGroup) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 8, 1, 16);
    scenario.hardware.node.gpus_per_node = 8;
    EXPECT_EQ(fused_dispatch_buffer(scenario, dimensions_of(scenario)), Bytes{0});
    scenario.parallel.moe_token_dispatcher_type = TokenDispatcher::flex;
    EXPECT_EQ(fused_dispatch_buffer(scenario, dimensions_of(scenario)), Bytes{32'768 * (2 * 2048 + 4 * 16 * 8)});
    scenario.parallel.expert_model_parallel_size = 16;
    EXPECT_EQ(fused_dispatch_buffer(scenario, dimensions_of(scenario)),
              Bytes{65'536 * (2 * 2048 + 4 * 8 * 8) + 4096 * 2048 * 2});
}

// ---------------------------------------------------------------------------------------------------------------- FP8

/// EP16: 8 experts a rank, 32,768 rows of h 2048, 4096 of each expert.
Scenario in_fp8(types::Precision precision, types::ModuleSet modules) {
    Scenario scenario = split(qwen3_30b_a3b(), 1, 16, 1, 16);
    scenario.precision = precision;
    scenario.offload.offload_modules = modules;
    return scenario;
}

// Where expert_fc1 is offloaded its input is one 16-bit tensor, 32,768 * 2048 * 2 = 128 MiB; else an FP8 copy of half
// that. The activation's input stays in 16 bits, 32,768 * 1536 * 2 = 96 MiB; fc2's input is FP8, 32,768 * 768.
TEST(Experts, InFp8SaveTheOriginalInputWhereItMoves) {
    using types::Precision;
    for (const auto precision : {Precision::fp8_delayed, Precision::fp8_tensorwise, Precision::fp8_blockwise}) {
        const LayerScript moved = moe_of(in_fp8(precision, {Module::expert_fc1}));
        const auto groups = groups_of(moved);
        EXPECT_EQ(groups.at(Module::expert_fc1).copied, 128_MiB);
        EXPECT_EQ(groups.at(Module::expert_fc1).tensors.size(), 1U);
        EXPECT_EQ(groups.at(Module::moe_act).copied, 96_MiB + Bytes{4 * 32'768});
        EXPECT_EQ(saved_as(moved, "expert_fc2.input_fp8"), Bytes{32'768 * 768});
        EXPECT_EQ(saved_as(moe_of(in_fp8(precision, {Module::moe_act})), "expert_fc1.input_fp8"), 64_MiB);
    }
}

// mxfp8 keeps each expert's own piece, 4096 * 2048 = 8,388,608 elements of one byte, and its scales, one byte for each
// 32 elements: 262,144, below Megatron's minimum of 1,048,576 elements that each tensor is held to alone.
TEST(Experts, InMxfp8SaveAPieceForEachExpert) {
    const auto groups = groups_of(moe_of(in_fp8(types::Precision::mxfp8, {Module::expert_fc1})));
    std::vector<std::int64_t> bytes;
    for (const GroupTensor& tensor : groups.at(Module::expert_fc1).tensors) bytes.push_back(tensor.bytes.count);
    std::vector<std::int64_t> expected;
    for (int expert = 0; expert < 8; ++expert) expected.insert(expected.end(), {8'388'608, 262'144});
    EXPECT_EQ(bytes, expected);
}

// 1056 tokens a rank to 3 of 128 experts, from 16 ranks to 8 experts a rank: 3168 rows, 396 of each expert, padded to a
// multiple of 16, 400, or of 32, 416.
TEST(Experts, InFp8PadTheRowsOfEachExpert) {
    for (const auto& [precision, rows] :
         std::vector<std::pair<types::Precision, std::int64_t>>{{types::Precision::bf16, 3168},
                                                                {types::Precision::fp8_blockwise, 3200},
                                                                {types::Precision::mxfp8, 3328}}) {
        Scenario scenario = in_fp8(precision, {});
        scenario.batch.seq_length = 1056;
        scenario.model.moe_router_topk = 3;
        EXPECT_EQ(expert_rows(moe_of(scenario)), rows);
    }
}

TEST(Experts, InFp8MultiplyInFp8) {
    const LayerScript layer = moe_of(in_fp8(types::Precision::mxfp8, {}));
    int fp8 = 0;
    for (const Kernel& kernel : layer.kernels) {
        const bool expert = kernel.kind == KernelClass::gemm && kernel.name.starts_with("expert_fc");
        if (expert) {
            EXPECT_TRUE(kernel.fp8) << kernel.name;
            ++fp8;
        }
        if (kernel.name.starts_with("router")) {
            EXPECT_FALSE(kernel.fp8) << kernel.name;
        }
    }
    EXPECT_EQ(fp8, 6);  // forward, dgrad and wgrad of fc1 and fc2
}

}  // namespace
}  // namespace stowage::layers::testing
