#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::ContextCommunication;
using types::Scenario;
using namespace types::literals;

Scenario over(Scenario scenario, std::int64_t ranks, ContextCommunication type) {
    scenario.parallel.context_parallel_size = ranks;
    scenario.parallel.cp_comm_type = type;
    return scenario;
}

LayerScript dense(const Scenario& scenario) { return script_of(scenario, ScriptKind::dense_layer); }

std::vector<Collective> collectives(const LayerScript& script, const std::vector<Step>& steps) {
    std::vector<Collective> result;
    for (const Step& step : steps)
        if (step.kind == StepKind::collective) result.push_back(script.collectives[step.detail]);
    return result;
}

// A ring saves query, key with value, output and statistics: the sums of one rank, for a share of the tokens.
TEST(ContextParallel, ARingDividesEverySavedByteByItsRanks) {
    for (const Scenario& scenario : {llama3_70b(), deepseek_v3_dense()}) {
        const Bytes alone = saved_bytes(dense(scenario));
        for (const std::int64_t ranks : {2, 8})
            EXPECT_EQ(ranks * saved_bytes(dense(over(scenario, ranks, ContextCommunication::p2p))).count, alone.count);
    }
    const Bytes alone = saved_bytes(script_of(qwen3_30b_a3b(), ScriptKind::moe_layer));
    Scenario moe = over(qwen3_30b_a3b(), 4, ContextCommunication::p2p);
    EXPECT_EQ(4 * saved_bytes(script_of(moe, ScriptKind::moe_layer)).count, alone.count);
}

TEST(ContextParallel, AnAllToAllDividesThemToo) {
    const Bytes alone = saved_bytes(dense(llama3_70b()));
    EXPECT_EQ(4 * saved_bytes(dense(over(llama3_70b(), 4, ContextCommunication::a2a))).count, alone.count);
}

// Gathered keys and values go; but attention keeps the outputs of its two chunks beside the one that the projection
// keeps: 64 heads * 128 * 1024 tokens * 2 bytes = 16 MiB more.
TEST(ContextParallel, AllGatherKeepsTheOutputTwice) {
    const Bytes share{saved_bytes(dense(llama3_70b())).count / 4};
    EXPECT_EQ(saved_bytes(dense(over(llama3_70b(), 4, ContextCommunication::all_gather))), share + 16_MiB);
}

// The causal halves are dealt so that all ranks work alike.
TEST(ContextParallel, DividesOperationsByItsRanks) {
    const LayerScript alone = dense(llama3_70b());
    for (const auto type : {ContextCommunication::p2p, ContextCommunication::all_gather, ContextCommunication::a2a}) {
        const LayerScript layer = dense(over(llama3_70b(), 4, type));
        for (const Phase phase : {Phase::forward, Phase::backward, Phase::weight_gradient})
            EXPECT_DOUBLE_EQ(4 * flops(layer, phase), flops(alone, phase));
    }
}

// 4 ranks of 1024 tokens, 8 groups of 128: key and value 1024 * 2 * 8 * 128 * 2 = 4 MiB. Three exchanges forward; four
// backward, with the gradients beside them (8 MiB) except in the first, alone in the last.
TEST(ContextParallel, ARingExchangesKeysAndValuesOnceForEachOtherRank) {
    const LayerScript layer = dense(over(llama3_70b(), 4, ContextCommunication::p2p));
    std::vector<Bytes> forward;
    for (const Collective& sent : collectives(layer, layer.forward)) {
        EXPECT_EQ(sent.kind, CollectiveKind::exchange);
        EXPECT_EQ(sent.group, CommGroup::context);
        EXPECT_FALSE(sent.blocks_main);
        forward.push_back(sent.bytes);
    }
    EXPECT_EQ(forward, (std::vector<Bytes>{4_MiB, 4_MiB, 4_MiB}));
    std::vector<Bytes> backward;
    for (const Collective& sent : collectives(layer, layer.backward)) backward.push_back(sent.bytes);
    EXPECT_EQ(backward, (std::vector<Bytes>{4_MiB, 8_MiB, 8_MiB, 4_MiB}));
}

// All ranks' keys are 8 MiB, their values too; gathered in forward and backward, their gradients reduced.
TEST(ContextParallel, AllGatherMovesWholeKeysAndValues) {
    const LayerScript layer = dense(over(llama3_70b(), 4, ContextCommunication::all_gather));
    for (const auto* steps : {&layer.forward, &layer.backward}) {
        std::map<CollectiveKind, Bytes> moved;
        for (const Collective& one : collectives(layer, *steps)) moved[one.kind] += one.bytes;
        EXPECT_EQ(moved[CollectiveKind::all_gather], 16_MiB);
        EXPECT_EQ(moved[CollectiveKind::reduce_scatter], steps == &layer.forward ? Bytes{0} : 16_MiB);
    }
}

// Query and output 1024 * 64 * 128 * 2 = 16 MiB, key and value 2 MiB each. Backward: output and its gradient, then the
// three gradients.
TEST(ContextParallel, AllToAllMovesEveryTensorOfAttention) {
    const LayerScript layer = dense(over(llama3_70b(), 4, ContextCommunication::a2a));
    Bytes forward;
    Bytes backward;
    for (const Collective& one : collectives(layer, layer.forward)) forward += one.bytes;
    for (const Collective& one : collectives(layer, layer.backward)) backward += one.bytes;
    EXPECT_EQ(forward, 36_MiB);
    EXPECT_EQ(backward, 52_MiB);
}

// DeepSeek-V3 on 4 ranks: a quarter of 192 + 192 + 128 + 128 MiB, key and value in one tensor.
TEST(ContextParallel, ARingsGroupMovesQueryAndTheJoinedKeyAndValue) {
    const LayerScript layer = dense(over(deepseek_v3_dense(), 4, ContextCommunication::p2p));
    for (const TensorGroup& group : tensor_groups(layer)) {
        if (group.module != Module::core_attn) continue;
        ASSERT_EQ(group.tensors.size(), 4U);
        EXPECT_EQ(group.tensors[0].bytes, 48_MiB);
        EXPECT_EQ(group.tensors[1].bytes, 80_MiB);
        EXPECT_EQ(group.tensors[2].bytes, 32_MiB);
    }
}

// A window of 128 tokens, its own included, of 4096: 128 * 4096 - 128^2 / 2 pairs instead of 4096^2 / 2.
TEST(Windows, LimitTheOperationsAndNoBytes) {
    Scenario scenario = llama3_70b();
    const LayerScript all = dense(scenario);
    scenario.model.window_size = 127;
    const LayerScript windowed = dense(scenario);
    const double pairs = 128.0 * 4096 - 128.0 * 128 / 2;
    EXPECT_EQ((flops_by_part(windowed)[{Part::core_attn, Phase::forward}]), 4 * pairs * 64 * 128);
    EXPECT_EQ(saved_bytes(windowed), saved_bytes(all));
}

}  // namespace
}  // namespace stowage::layers::testing
