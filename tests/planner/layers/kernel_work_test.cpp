// What kernels say of their shape, for planner/program/kernel_times.hpp.

#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::ContextCommunication;
using types::Scenario;

std::vector<Kernel> named(const LayerScript& script, std::string_view name) {
    std::vector<Kernel> result;
    for (const Kernel& kernel : script.kernels)
        if (kernel.name == name) result.push_back(kernel);
    return result;
}

Kernel only(const LayerScript& script, std::string_view name) {
    const std::vector<Kernel> kernels = named(script, name);
    EXPECT_EQ(kernels.size(), 1U) << name;
    return kernels.empty() ? Kernel{} : kernels.front();
}

LayerScript dense(const Scenario& scenario) { return script_of(scenario, ScriptKind::dense_layer); }

// Llama-3-70B, 4096 tokens: fc2's output is 4096 x 8192 in bf16; its weight gradient 8192 x 28672 is read and written
// in fp32.
TEST(KernelWork, AGemmSaysWhatItsResultMoves) {
    const LayerScript layer = dense(llama3_70b());
    EXPECT_EQ(only(layer, "mlp_fc2.forward").result, Bytes{2LL * 4096 * 8192});
    EXPECT_EQ(only(layer, "mlp_fc2.wgrad").result, Bytes{8LL * 8192 * 28672});
    EXPECT_EQ(only(layer, "mlp_fc2.forward").count, 1);
}

// Qwen3-30B-A3B on one rank: 128 experts, 32768 rows of 1536, weights of 2048 x 1536.
TEST(KernelWork, ExpertsAreAsManyGemms) {
    const LayerScript layer = script_of(qwen3_30b_a3b(), ScriptKind::moe_layer);
    EXPECT_EQ(only(layer, "expert_fc1.forward").count, 128);
    EXPECT_EQ(only(layer, "expert_fc1.forward").result, Bytes{2LL * 32768 * 1536});
    EXPECT_EQ(only(layer, "expert_fc1.wgrad").count, 128);
    EXPECT_EQ(only(layer, "expert_fc1.wgrad").result, Bytes{8LL * 128 * 2048 * 1536});
}

TEST(KernelWork, OnlyBlockwiseFp8HasAScaleForEachBlock) {
    Scenario scenario = llama3_70b();
    scenario.precision = types::Precision::fp8_tensorwise;
    EXPECT_TRUE(only(dense(scenario), "mlp_fc1.forward").fp8);
    EXPECT_FALSE(only(dense(scenario), "mlp_fc1.forward").block_scaled);
    scenario.precision = types::Precision::fp8_blockwise;
    EXPECT_TRUE(only(dense(scenario), "mlp_fc1.forward").block_scaled);
    EXPECT_TRUE(only(dense(scenario), "mlp_fc1.wgrad").block_scaled);
}

void expect_work(const AttentionWork& work, const AttentionWork& expected) {
    EXPECT_DOUBLE_EQ(work.rows, expected.rows);
    EXPECT_DOUBLE_EQ(work.keys, expected.keys);
    EXPECT_DOUBLE_EQ(work.longest, expected.longest);
    EXPECT_DOUBLE_EQ(work.head_size, expected.head_size);
}

// 64 heads of 128, 4096 tokens: a row sees half of them, the last one all.
TEST(KernelWork, CausalAttentionSeesHalfOfTheKeys) {
    const LayerScript layer = dense(llama3_70b());
    expect_work(only(layer, "core_attn.forward").attention, {64 * 4096.0, 2048, 4096, 128});
    expect_work(only(layer, "core_attn.backward").attention, {64 * 4096.0, 2048, 4096, 128});
}

// Queries of 192 and values of 128.
TEST(KernelWork, MultiLatentAttentionIsBetweenItsTwoSizes) {
    EXPECT_EQ(only(dense(deepseek_v3_dense()), "core_attn.forward").attention.head_size, 160);
}

// Two ranks with 2048 tokens each. First step: own tokens, causal. Second: all queries with half of the other's keys or
// half the queries with all, rows of one length.
TEST(KernelWork, OnlyTheFirstStepOfARingIsCausal) {
    Scenario scenario = llama3_70b();
    scenario.parallel.context_parallel_size = 2;
    scenario.parallel.cp_comm_type = ContextCommunication::p2p;
    const std::vector<Kernel> steps = named(dense(scenario), "core_attn.forward");
    ASSERT_EQ(steps.size(), 2U);
    expect_work(steps[0].attention, {64 * 2048.0, 1024, 2048, 128});
    expect_work(steps[1].attention, {64 * 2048.0, 1024, 1024, 128});
}

// Two chunks of 1024 queries; together they see 4096 keys, and within a chunk the last row 512 more than the mean.
TEST(KernelWork, ChunksOfGatheredAttentionAreAlmostEven) {
    Scenario scenario = llama3_70b();
    scenario.parallel.context_parallel_size = 2;
    scenario.parallel.cp_comm_type = ContextCommunication::all_gather;
    for (const Kernel& chunk : named(dense(scenario), "core_attn.forward"))
        expect_work(chunk.attention, {64 * 1024.0, 2048, 2560, 128});
}

}  // namespace
}  // namespace stowage::layers::testing
