#include <gtest/gtest.h>

#include "planner/layers/inventory.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/padding.hpp"
#include "planner/layers/states.hpp"
#include "planner/layers/states_formats.hpp"
#include "tests/planner/layers/scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Precision;
using types::Scenario;

// 256 x 512 weights. Tensor-wide scale: one byte, on Hopper a second, transposed copy, and one fp32 number. Blocks of
// 128 x 128: two copies, scales fp32 [2, 4] and [4, 4 (2 padded)]: 32 + 64. MXFP8: two copies, one byte of scale for
// 32: [256, 16] = 4096 and [512, 8] = 4096. NVFP4: half a byte twice, a byte for 16: [256, 32] and [512, 16], two
// numbers.
TEST(QuantizedWeight, HasTheCopiesAndScalesOfItsRecipe) {
    Scenario scenario = llama3_70b();
    const std::int64_t elements = 256 * 512;
    const auto bytes = [&](Precision precision, int capability) {
        scenario.precision = precision;
        scenario.hardware.node.device.compute_capability = capability;
        return quantized_weight(scenario, {256, 512}).count;
    };
    EXPECT_EQ(bytes(Precision::fp8_tensorwise, 90), 2 * elements + 4);
    EXPECT_EQ(bytes(Precision::fp8_delayed, 100), elements + 4);
    EXPECT_EQ(bytes(Precision::fp8_blockwise, 90), 2 * elements + 4 * (2 * 4 + 4 * 4));
    EXPECT_EQ(bytes(Precision::mxfp8, 100), 2 * elements + 4096 + 4096);
    EXPECT_EQ(bytes(Precision::nvfp4, 100), elements + 8192 + 8192 + 8);
    EXPECT_EQ(bytes(Precision::bf16, 90), 0);
}

/// States under the scenario's precision of a stage built in bf16: parameters do not depend on it.
StateBytes states_of(Scenario scenario) {
    Scenario plain = scenario;
    plain.precision = Precision::bf16;
    plain.optimizer.fp8_param_gather = false;
    StageLayers stage = build_megatron_stage(plain, 0);
    stage.states = rank_states(scenario, dimensions_of(plain), stage);
    return state_bytes(stage);
}

/// Elements of the linears of layers.
std::int64_t linear_elements(const Scenario& scenario) {
    std::int64_t elements = 0;
    for (const Parameter& parameter : stage_parameters(build_megatron_stage(scenario, 0)))
        if (is_engine_linear(parameter)) elements += parameter.elements();
    return elements;
}

Scenario sharded_gpt() {
    Scenario scenario = small_gpt();
    scenario.parallel.data_parallel_size = 8;
    scenario.optimizer.use_distributed_optimizer = true;
    return scenario;
}

// 12 layers of qkv 1536 x 512, projection 512 x 512, fc1 2048 x 512, fc2 512 x 2048: 3,145,728 each.
TEST(Fp8States, QuantiseTheLinearsOfLayersOnly) { EXPECT_EQ(linear_elements(small_gpt()), 12 * 3'145'728); }

// bf16 parameters stay; copies in FP8 are made beside them in the step's first microbatch and kept: on Hopper two bytes
// a weight.
TEST(Fp8States, KeepQuantisedCopiesBesideTheParameters) {
    Scenario scenario = sharded_gpt();
    const StateBytes plain = states_of(scenario);
    scenario.precision = Precision::fp8_tensorwise;
    const StateBytes fp8 = states_of(scenario);
    EXPECT_EQ(fp8.weights, plain.weights);
    EXPECT_EQ(fp8.workspace - plain.workspace, Bytes{2 * 12 * 3'145'728 + 12 * 4 * 4});
}

// fp8_param_gather: a weight takes one byte in its buffer and on Hopper one more for the transposed copy, 2 in all as
// in bf16; on Blackwell one byte less for each of 37,748,736 weights. Scales, 4 bytes a weight, and padding aside.
TEST(Fp8States, OfGatheredFp8WeightsTakeTwoBytesOnHopperAndOneOnBlackwell) {
    Scenario scenario = sharded_gpt();
    const StateBytes plain = states_of(scenario);
    scenario.precision = Precision::fp8_tensorwise;
    scenario.optimizer.fp8_param_gather = true;
    const StateBytes hopper = states_of(scenario);
    EXPECT_NEAR(static_cast<double>((hopper.weights - plain.weights).count), 0, 3000);
    EXPECT_NEAR(static_cast<double>((hopper.gradients - plain.gradients).count), 0, 6000);
    scenario.hardware.node.device.compute_capability = 100;
    EXPECT_EQ(hopper.weights - states_of(scenario).weights, Bytes{12 * 3'145'728});
}

// MXFP8 weights lie in no buffer: two copies and scales of their own, 2 bytes and 2/32; a bf16 copy is gathered through
// the gradient buffer.
TEST(Fp8States, OfMxfp8WeightsHaveNoParameterBuffer) {
    Scenario scenario = sharded_gpt();
    const StateBytes plain = states_of(scenario);
    scenario.hardware.node.device.compute_capability = 100;
    scenario.precision = Precision::mxfp8;
    scenario.optimizer.fp8_param_gather = true;
    const StateBytes mxfp8 = states_of(scenario);
    EXPECT_NEAR(static_cast<double>((mxfp8.weights - plain.weights).count), 2.0 / 32 * 12 * 3'145'728, 3000);
}

// The precision-aware optimizer keeps whole fp32 main parameters under FP8 other than delayed scaling.
TEST(Fp8States, KeepWholeMainParametersUnlessScalingIsDelayed) {
    Scenario scenario = sharded_gpt();
    scenario.optimizer.use_precision_aware_optimizer = true;
    scenario.precision = Precision::fp8_tensorwise;
    EXPECT_EQ(state_formats(scenario).main, 4);
    EXPECT_FALSE(state_formats(scenario).optimizer_holds_main);
    scenario.precision = Precision::fp8_delayed;
    EXPECT_EQ(state_formats(scenario).main, 2);
}

}  // namespace
}  // namespace stowage::layers::testing
