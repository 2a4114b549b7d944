#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Precision;
using types::Scenario;
using namespace types::literals;

constexpr Precision kRecipes[] = {Precision::fp8_delayed, Precision::fp8_tensorwise, Precision::fp8_blockwise,
                                  Precision::mxfp8};

LayerScript in(Scenario scenario, Precision precision) {
    scenario.precision = precision;
    return script_of(scenario, ScriptKind::dense_layer);
}

std::map<std::string, Bytes> saved_by_name(const LayerScript& script) {
    std::map<std::string, Bytes> result;
    for (const SavedTensor& saved : script.saved) result[saved.name] += saved.bytes();
    return result;
}

TEST(Precision, OfFp16SavesAsMuchAsBf16) {
    EXPECT_EQ(saved_bytes(in(llama3_70b(), Precision::fp16)), saved_bytes(in(llama3_70b(), Precision::bf16)));
}

// T = 4096: the normed inputs of qkv and fc1, 8192 wide, and fc2's input, 28,672 wide, lose a byte an element. The
// projection keeps attention's output in 16 bits, except with delayed scaling, where it has a copy of its own, one byte
// an element of 8192, beside the one that attention keeps. Blocks of scales add a 32nd: an fp32 number for 128
// elements, or a byte for 32.
TEST(Precision, OfFp8TakesAByteOffEveryInputThatALinearKeeps) {
    const std::int64_t before = saved_bytes(in(llama3_70b(), Precision::bf16)).count;
    constexpr std::int64_t kInputs = 4096 * (8192 + 8192 + 28'672);
    EXPECT_EQ(saved_bytes(in(llama3_70b(), Precision::fp8_tensorwise)).count, before - kInputs);
    EXPECT_EQ(saved_bytes(in(llama3_70b(), Precision::fp8_delayed)).count, before - kInputs + 4096 * 8192);
    EXPECT_EQ(saved_bytes(in(llama3_70b(), Precision::fp8_blockwise)).count, before - kInputs + kInputs / 32);
    EXPECT_EQ(saved_bytes(in(llama3_70b(), Precision::mxfp8)).count, before - kInputs + kInputs / 32);
}

// The pre-norm input of qkv stays in 16 bits, 4096 * 8192 * 2 = 64 MiB; the normed one has 32 MiB and its scales 1 MiB,
// which are offloaded each for itself.
TEST(Precision, OfAGroupJudgesDataAndScalesApart) {
    const auto saved = saved_by_name(in(llama3_70b(), Precision::mxfp8));
    EXPECT_EQ(saved.at("input"), 64_MiB);
    EXPECT_EQ(saved.at("qkv_linear.input_fp8"), 32_MiB);
    EXPECT_EQ(saved.at("qkv_linear.input_scales"), 1_MiB);
}

// In 16 bits both down projections of latent attention share the normed input, 56 MiB; in FP8 each has a copy of 28
// MiB.
TEST(Precision, OfTwoReadersMakesTwoCopies) {
    const auto saved = saved_by_name(in(deepseek_v3_dense(), Precision::fp8_tensorwise));
    EXPECT_EQ(saved.at("q_down.input_fp8"), 28_MiB);
    EXPECT_EQ(saved.at("kv_down.input_fp8"), 28_MiB);
    EXPECT_EQ(saved.count("attn_norm.output"), 0U);
}

// A norm that is made again in the backward is made in 16 bits, so its readers keep no FP8 copy.
TEST(Precision, OfARebuiltNormKeepsNoCopy) {
    Scenario scenario = deepseek_v3_dense();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm};
    const auto saved = saved_by_name(in(scenario, Precision::fp8_tensorwise));
    EXPECT_EQ(saved.count("q_down.input_fp8"), 0U);
    EXPECT_EQ(saved.count("attn_norm.output"), 1U);
}

// Linears multiply in FP8, all three ways; attention does not.
TEST(Precision, OfFp8IsThatOfTheLinears) {
    for (const Precision recipe : kRecipes) {
        const LayerScript layer = in(llama3_70b(), recipe);
        for (const Kernel& kernel : layer.kernels)
            EXPECT_EQ(kernel.fp8, kernel.kind == KernelClass::gemm) << kernel.name;
        EXPECT_EQ(flops(layer, Phase::forward), flops(in(llama3_70b(), Precision::bf16), Phase::forward));
    }
}

// What is gathered over tensor ranks is FP8: qkv's input 4096 * 8192 bytes instead of twice that, with MXFP8's scales a
// 32nd more. What is reduced keeps 16 bits.
TEST(Precision, OfAGatherIsThatOfTheOperand) {
    Scenario scenario = llama3_70b();
    scenario.parallel.tensor_model_parallel_size = 8;
    scenario.parallel.sequence_parallel = true;
    const auto moved = [&](Precision precision, const std::string& name) {
        for (const Collective& collective : in(scenario, precision).collectives)
            if (collective.name == name) return collective.bytes;
        return Bytes{-1};
    };
    EXPECT_EQ(moved(Precision::bf16, "qkv_linear.gather"), 64_MiB);
    EXPECT_EQ(moved(Precision::fp8_tensorwise, "qkv_linear.gather"), 32_MiB);
    EXPECT_EQ(moved(Precision::mxfp8, "qkv_linear.gather"), 33_MiB);
    EXPECT_EQ(moved(Precision::mxfp8, "attn_proj.scatter"), 64_MiB);
}

// Before Blackwell the copy that the weight gradient needs is a second one, transposed; from it on one serves both
// GEMMs. Either way one is kept.
TEST(Precision, OfFp8KeepsOneCopyOnEveryDevice) {
    Scenario scenario = llama3_70b();
    const Bytes hopper = saved_bytes(in(scenario, Precision::fp8_tensorwise));
    scenario.hardware.node.device.compute_capability = 100;
    EXPECT_EQ(saved_bytes(in(scenario, Precision::fp8_tensorwise)), hopper);
}

TEST(Precision, OfFp8LeavesNothingBehind) {
    for (const Precision recipe : kRecipes)
        for (Scenario scenario : {llama3_70b(), deepseek_v3_dense(), small_gpt()})
            for (const std::int64_t tensor : {1, 8}) {
                scenario.parallel.tensor_model_parallel_size = tensor;
                scenario.parallel.sequence_parallel = tensor > 1;
                const LayerScript layer = in(scenario, recipe);
                Replay replay(layer);
                replay.forward();
                replay.backward();
                EXPECT_TRUE(replay.faults().empty());
                EXPECT_EQ(replay.live(), Bytes{0});
            }
}

}  // namespace
}  // namespace stowage::layers::testing
