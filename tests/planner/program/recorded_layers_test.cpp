#include "planner/program/recorded_layers.hpp"
#include "planner/program/stand_ins.hpp"

#include <gtest/gtest.h>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::StageLayers;
using std::chrono::microseconds;
using types::KernelClass;
using types::Module;
using types::Scenario;

/// Marks of two layers, as a PyTorch process would set them: a GEMM of 10 us (20 in layer 1) and an attention kernel of
/// 30, both twice as long in the backward, 1 us apart; two microbatches. core_attn saves 4000 and 96 bytes, mlp_fc1,
/// which has no group, 64.
recording::Recording marked() {
    recording::Recording recording;
    recording.source = "injected";
    recording.names = {"", "sm90_xmma_gemm_bf16", "flash_fwd_kernel", "elementwise"};
    recording.sites = {{"qkv_linear", "forward", ""},  {"core_attn", "forward", ""}, {"core_attn", "backward", ""},
                       {"qkv_linear", "backward", ""}, {"mlp_fc1", "forward", ""},   {"mlp_fc1", "backward", ""}};
    recording::Step step;
    step.stage = "eager";
    std::uint32_t operation = 0;
    Nanoseconds now{0};
    const auto kernel = [&](std::uint32_t site, std::uint32_t name, std::int32_t layer, std::int32_t microbatch,
                            Nanoseconds duration) {
        recording::Event event;
        event.site = site;
        event.operation = operation++;
        event.layer = layer;
        event.microbatch = microbatch;
        event.name = name;
        event.start = now;
        event.duration = duration;
        step.events.push_back(event);
        now += duration + microseconds(1);
    };
    for (const std::int32_t microbatch : {0, 1}) {
        for (const std::int32_t layer : {0, 1}) {
            kernel(0, 1, layer, microbatch, microseconds(10 + 10 * layer));
            kernel(1, 2, layer, microbatch, microseconds(30));
            kernel(4, 3, layer, microbatch, microseconds(5));
        }
        for (const std::int32_t layer : {1, 0}) {
            kernel(5, 3, layer, microbatch, microseconds(5));
            kernel(2, 2, layer, microbatch, microseconds(60));
            kernel(3, 1, layer, microbatch, microseconds(20 + 20 * layer));
        }
    }
    recording.steps.push_back(step);
    std::uint32_t storage = 0;
    for (const std::int32_t layer : {0, 1}) {
        recording::Group group{"core_attn", layer, 0, 0, {}};
        for (const std::int64_t bytes : {4000, 96})
            group.tensors.push_back({.storage = storage++, .bytes = Bytes{bytes}, .storage_bytes = Bytes{bytes}});
        recording.groups.push_back(group);
        recording.groups.push_back(
            {"mlp_fc1", layer, 0, 0, {{.storage = storage++, .bytes = Bytes{64}, .storage_bytes = Bytes{64}}}});
    }
    return recording;
}

/// Two layers of our own, whose embedding, head and optimizer stay.
Scenario scenario() {
    Scenario scenario = layers::testing::grouped_gpt();
    scenario.model.num_layers = 2;
    scenario.hardware.node.device.kernel_overhead = microseconds(1);
    return scenario;
}

StageLayers recorded_stage(const Scenario& scenario, const recording::Recording& recording) {
    StageLayers stage = layers::build_stage(scenario, 0);
    const RecordedOperations operations = recorded_operations(recording, scenario.hardware.node);
    EXPECT_EQ(use_recorded_layers(stage, operations, recording, scenario.hardware.node.device), 2);
    return stage;
}

const layers::LayerScript& script_of(const StageLayers& stage, std::int64_t layer) {
    const layers::ChunkLayers& chunk = stage.chunks.front();
    for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
        if (chunk.layer_numbers[frame] == layer) return stage.scripts[chunk.order[frame]];
    throw std::logic_error("no such layer");
}

TEST(RecordedLayers, KnowTheClassOfAKernel) {
    EXPECT_EQ(class_of_kernel("nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"), KernelClass::gemm);
    EXPECT_EQ(class_of_kernel("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16"), KernelClass::attention);
    EXPECT_EQ(class_of_kernel("void at::native::vectorized_elementwise_kernel<4>"), KernelClass::memory_bound);
}

TEST(RecordedLayers, AreTheRecordedKernelsAndTheirMeans) {
    // Both layers have the same kernels and tensors: one script with the mean of their times, 15 + 1 us of gap.
    const StageLayers stage = recorded_stage(scenario(), marked());
    const layers::LayerScript& script = script_of(stage, 0);
    EXPECT_EQ(&script, &script_of(stage, 1));
    ASSERT_EQ(script.kernels.size(), 6U);
    EXPECT_EQ(script.kernels[0].measured, microseconds(16));
    EXPECT_EQ(script.kernels[0].kind, KernelClass::gemm);
    EXPECT_EQ(script.kernels[1].measured, microseconds(31));
    EXPECT_EQ(script.kernels[1].kind, KernelClass::attention);
    EXPECT_EQ(script.kernels[2].traffic, Bytes{6'000'000});  // 6 us at 1 TB/s
    EXPECT_EQ(script.kernels[4].measured, microseconds(61));
    EXPECT_EQ(script.kernels[5].measured, microseconds(31));
}

TEST(RecordedLayers, SaveWhatWasSaved) {
    const StageLayers stage = recorded_stage(scenario(), marked());
    const std::vector<layers::TensorGroup> groups = layers::tensor_groups(script_of(stage, 0));
    ASSERT_EQ(groups.size(), 1U);
    EXPECT_EQ(groups[0].module, Module::core_attn);
    EXPECT_EQ(groups[0].copied, Bytes{4096});
    EXPECT_EQ(groups[0].freed, Bytes{4096});
    EXPECT_EQ(layers::saved_bytes(script_of(stage, 0)), Bytes{4160});
}

TEST(RecordedLayers, WithOtherTensorsAreOfAnotherKind) {
    recording::Recording recording = marked();
    recording.groups.back().tensors.front().bytes = Bytes{66};
    const StageLayers stage = recorded_stage(scenario(), recording);
    EXPECT_EQ(script_of(stage, 0).kernels[0].measured, microseconds(11));
    EXPECT_EQ(script_of(stage, 1).kernels[0].measured, microseconds(21));
}

TEST(RecordedLayers, LowerToSoundPrograms) {
    const Scenario job = scenario();
    const StageLayers stage = recorded_stage(job, marked());
    for (const types::ModuleSet& modules : {types::ModuleSet{}, types::ModuleSet{Module::core_attn}}) {
        const Lowered lowered = lower(stage, job.microbatches(), {.modules = modules, .min_offloaded_tensor_size = 1},
                                      job.rules, Durations(job.hardware, job.parallel));
        const tests::ProgramFacts facts =
            tests::follow(lowered.program, {RunStage::record, RunStage::steady, RunStage::steady});
        EXPECT_EQ(facts.problems, std::vector<std::string>{});
    }
}

// The times are the recorded means of 16 us and so on, less the 1 us between empty kernels; a device of 1 TB/s.
TEST(RecordedLayers, AreStoodInForAsLongAsTheyWereRecorded) {
    const Scenario job = scenario();
    StageLayers stage = recorded_stage(job, marked());
    const Durations durations(job.hardware, job.parallel);
    make_stand_ins(stage, durations, job.hardware.node.device);
    const std::vector<layers::Kernel>& kernels = script_of(stage, 0).kernels;
    for (const layers::Kernel& kernel : kernels) {
        const layers::StandInWork& work = kernel.call.sizes.stand_in;
        EXPECT_EQ(kernel.call.call, layers::Call::stand_in) << kernel.name;
        EXPECT_EQ(work.kind, kernel.kind) << kernel.name;
        EXPECT_EQ(work.length, *kernel.measured - microseconds(1)) << kernel.name;
        EXPECT_EQ(work.traffic, kernel.traffic) << kernel.name;
    }
    for (const types::ModuleSet modules : {types::ModuleSet{}, types::ModuleSet{types::Module::core_attn}}) {
        const Lowered lowered = lower(stage, job.microbatches(), {.modules = modules, .min_offloaded_tensor_size = 1},
                                      job.rules, durations);
        const tests::WorkFacts facts =
            tests::check_work(lowered.program, {RunStage::setup, RunStage::record, RunStage::steady});
        EXPECT_EQ(facts.problems, std::vector<std::string>{});
        EXPECT_GT(facts.checked, 0);
    }
}

TEST(RecordedLayers, DoNotRunAgainWhatWasRecordedInTheBackward) {
    Scenario job = scenario();
    job.recompute.recompute_granularity = types::RecomputeGranularity::full;
    job.recompute.recompute_method = types::RecomputeMethod::uniform;
    job.recompute.recompute_num_layers = 1;
    EXPECT_TRUE(recorded_stage(job, marked()).chunks.front().recomputed.empty());
}

}  // namespace
}  // namespace stowage::program
