// Stand-ins: every kernel gets one of its class, bytes and length; the rest of a program stays; what they read was
// written, whatever graphs and offloading do.

#include "planner/program/stand_ins.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/error.hpp"
#include "tests/planner/layers/scenarios.hpp"
#include "tests/support/graph_jobs.hpp"
#include "tests/support/program_checker.hpp"
#include "tests/support/seed.hpp"
#include "tests/support/work_checker.hpp"

namespace stowage::program {
namespace {

using layers::Access;
using layers::CallOperand;
using layers::Kernel;
using layers::Part;
using layers::ScriptBuilder;
using layers::ScriptKind;
using layers::Slot;
using layers::StageLayers;
using layers::StateBuffer;
using types::KernelClass;
using types::Module;
using types::ModuleSet;
using types::Scenario;

constexpr ModuleSet kAll{Module::attn_norm, Module::qkv_linear, Module::core_attn, Module::attn_proj,
                         Module::mlp_norm,  Module::expert_fc1, Module::moe_act};

/// A device that moves a byte in a nanosecond, with 1 us between empty kernels.
Scenario round_machine() {
    Scenario scenario;
    types::Device& device = scenario.hardware.node.device;
    device.memory_bandwidth = {1e9};
    device.kernel_overhead = Nanoseconds{1000};
    return scenario;
}

/// The linear of layer_script.hpp: x and y have 1,024 bytes. The forward takes 10 us, of the backward's kernels the
/// first 3 us and the second what its 5,000 bytes do.
StageLayers linear_stage() {
    ScriptBuilder script(ScriptKind::dense_layer, "linear");
    script.boundary({512}, {512}, types::DataType::bf16);
    const auto kernel = [](const char* name, KernelClass kind, std::int64_t traffic, std::int64_t measured) {
        Kernel made;
        made.name = name;
        made.kind = kind;
        made.traffic = Bytes{traffic};
        if (measured > 0) made.measured = Nanoseconds{measured};
        return made;
    };
    script.begin_forward(Part::mlp_fc1);
    script.start(Module::mlp_norm);
    const layers::SavedIndex saved = script.save(layers::kInput, Module::mlp_norm);
    script.allocate(layers::kOutput);
    script.kernel(kernel("gemm", KernelClass::gemm, 4096, 10'000));
    script.commit(Module::mlp_norm);
    script.drop(layers::kInput);
    script.begin_backward(Part::mlp_fc1);
    script.commit(Module::mlp_norm);
    script.allocate(layers::kGradInput);
    script.read(saved);
    script.kernel(kernel("dgrad", KernelClass::attention, 1536, 3'000));
    script.kernel(kernel("wgrad", KernelClass::memory_bound, 5000, 0));
    script.forget(saved);
    script.start(Module::mlp_norm);
    script.drop(layers::kGradOutput);
    StageLayers stage;
    stage.scripts.push_back(script.build());
    stage.states = {{"few", Bytes{2048}, StateBuffer::What::gradients, StateBuffer::When::setup},
                    {"late", Bytes{9000}, StateBuffer::What::optimizer, StateBuffer::When::first_optimizer_step},
                    {"many", Bytes{4096}, StateBuffer::What::weights, StateBuffer::When::setup}};
    return stage;
}

void make(StageLayers& stage, const Scenario& scenario) {
    make_stand_ins(stage, Durations(scenario.hardware, scenario.parallel), scenario.hardware.node.device);
}

const layers::StandInWork& work_of(const StageLayers& stage, std::size_t kernel) {
    return stage.scripts[0].kernels[kernel].call.sizes.stand_in;
}

TEST(StandIns, HaveTheClassTheBytesAndTheLengthOfTheirKernels) {
    StageLayers stage = linear_stage();
    make(stage, round_machine());
    EXPECT_EQ(work_of(stage, 0).kind, KernelClass::gemm);
    EXPECT_EQ(work_of(stage, 1).kind, KernelClass::attention);
    EXPECT_EQ(work_of(stage, 2).kind, KernelClass::memory_bound);
    EXPECT_EQ(work_of(stage, 0).traffic, Bytes{4096});
    EXPECT_EQ(work_of(stage, 2).traffic, Bytes{5000});
    // Start to start less 1 us between empty kernels: what was measured, and 5,000 bytes at one in a nanosecond plus
    // that 1 us.
    EXPECT_EQ(work_of(stage, 0).length, Nanoseconds{9'000});
    EXPECT_EQ(work_of(stage, 1).length, Nanoseconds{2'000});
    EXPECT_EQ(work_of(stage, 2).length, Nanoseconds{5'000});
}

TEST(StandIns, ReadAndWriteWhatTheOrderOfStepsGives) {
    StageLayers stage = linear_stage();
    make(stage, round_machine());
    const auto operands = [&](std::size_t kernel) { return stage.scripts[0].kernels[kernel].call.operands; };
    const auto tensor = [](Slot slot, Access access) {
        return CallOperand{CallOperand::Kind::tensor, static_cast<std::uint16_t>(slot), access};
    };
    EXPECT_EQ(operands(0), (std::vector{tensor(layers::kInput, Access::read), tensor(layers::kOutput, Access::write)}));
    ASSERT_EQ(operands(1).size(), 3U);
    EXPECT_EQ(operands(1)[0], tensor(layers::kGradOutput, Access::read));
    EXPECT_EQ(operands(1)[1], (CallOperand{CallOperand::Kind::saved, 0, Access::read}));
    EXPECT_EQ(operands(2).front(), tensor(layers::kGradInput, Access::write));
    EXPECT_EQ(work_of(stage, 0).reads, std::vector{Bytes{1024}});
    EXPECT_EQ(work_of(stage, 0).writes, std::vector{Bytes{1024}});
}

// The first kernel of the backward has 2 x 1,024 bytes to read and moves 1,536: three quarters of each.
TEST(StandIns, TouchNoMoreOfTheirOperandsThanTheirKernelsMove) {
    StageLayers stage = linear_stage();
    make(stage, round_machine());
    EXPECT_EQ(work_of(stage, 1).reads, (std::vector{Bytes{768}, Bytes{768}}));
}

// Nothing to write: as many bytes as are read, at most a quarter of 1,536, are added to the sums.
TEST(StandIns, AddToTheSumsWhereNothingIsLeftToWrite) {
    StageLayers stage = linear_stage();
    make(stage, round_machine());
    EXPECT_TRUE(work_of(stage, 1).writes.empty());
    EXPECT_EQ(work_of(stage, 1).sums, Bytes{384});
    const CallOperand& last = stage.scripts[0].kernels[1].call.operands.back();
    EXPECT_EQ(last.kind, CallOperand::Kind::state);
    EXPECT_EQ(last.index, static_cast<std::uint16_t>(layers::StowageState::gradients));
    EXPECT_EQ(last.access, Access::read_write);
    // The two largest states that are there from the set-up on.
    EXPECT_EQ(stage.states[2].role, layers::StowageState::parameters);
    EXPECT_EQ(stage.states[0].role, layers::StowageState::gradients);
    EXPECT_FALSE(stage.states[1].role.has_value());
}

TEST(StandIns, RefuseWhatTheyCannotStandInForByName) {
    const auto refusal = [](const std::function<void(StageLayers&)>& change) {
        StageLayers stage = linear_stage();
        change(stage);
        try {
            make(stage, round_machine());
        } catch (const types::UnsupportedError& error) {
            return std::string(error.what());
        }
        return std::string("nothing");
    };
    EXPECT_EQ(refusal([](StageLayers&) {}), "nothing");
    EXPECT_EQ(refusal([](StageLayers& stage) { stage.paired_chunks = true; }),
              "error: stand-ins: chunks that run side by side (overlap_moe_expert_parallel_comm) are not executed");
    EXPECT_EQ(refusal([](StageLayers& stage) { stage.states.resize(1); }),
              "error: stand-ins: the rank keeps no two buffers from its set-up on, to copy weights from and to add to");
    EXPECT_EQ(refusal([](StageLayers& stage) {
                  std::vector<layers::Step>& steps = stage.scripts[0].forward;
                  std::erase_if(steps, [](const layers::Step& step) { return step.kind == layers::StepKind::kernel; });
              }),
              "error: stand-ins: linear: nothing writes its output: neither a kernel nor a collective follows the "
              "allocation");
    EXPECT_EQ(refusal([](StageLayers& stage) {
                  stage.scripts[0].tensors[0].persistent = true;
                  stage.states[2].bytes = stage.states[0].bytes = Bytes{512};
              }).find("error: stand-ins: linear: "),
              0U);
}

// ----------------------------------------------------------------------------------------------------- whole programs

Lowered lowered(const StageLayers& stage, const Scenario& scenario, const types::OffloadChoice& choice) {
    return lower(stage, scenario.microbatches(), choice, scenario.rules,
                 Durations(scenario.hardware, scenario.parallel));
}

/// All of an operation but the number of its work.
auto facts_of(const Operation& operation) {
    const bool has_work = operation.kind == OperationKind::compute || operation.kind == OperationKind::copy ||
                          operation.kind == OperationKind::collective || operation.kind == OperationKind::peer_transfer;
    return std::make_tuple(operation.kind, operation.stream, operation.other, operation.kernel_class,
                           operation.direction, operation.part, operation.phase, operation.scope, operation.transfer,
                           has_work ? 0 : operation.slot, operation.detail, operation.bytes, operation.duration);
}

/// Allocations, frees, copies, waits and times are the same, in the same order.
void expect_same_program(const StepProgram& before, const StepProgram& after) {
    ASSERT_EQ(before.bodies.size(), after.bodies.size());
    for (std::size_t body = 0; body < before.bodies.size(); ++body) {
        const auto& left = before.bodies[body].operations;
        const auto& right = after.bodies[body].operations;
        ASSERT_EQ(left.size(), right.size()) << before.bodies[body].name;
        for (std::size_t i = 0; i < left.size(); ++i)
            ASSERT_TRUE(facts_of(left[i]) == facts_of(right[i])) << before.bodies[body].name << ", operation " << i;
    }
}

/// Result: whether the program runs.
bool expect_sound(const Scenario& scenario, std::int64_t rank, const types::OffloadChoice& choice) {
    StageLayers stage = layers::build_stage(scenario, rank);
    const Lowered plain = lowered(stage, scenario, choice);
    make(stage, scenario);
    const Lowered made = lowered(stage, scenario, choice);
    if (made.chunk_mismatch || made.released_while_saved || made.released_static) return false;
    expect_same_program(plain.program, made.program);
    std::vector<RunStage> run = tests::whole_run(made.program);
    run.insert(run.begin(), RunStage::setup);
    const tests::WorkFacts work = tests::check_work(made.program, run);
    EXPECT_EQ(work.problems, std::vector<std::string>{});
    EXPECT_GT(work.checked, 0);
    return true;
}

/// With few layers, on a device that has rates.
Scenario small(Scenario scenario) {
    scenario.model.num_layers = 3;
    scenario.batch.global_batch_size = 2 * scenario.batch.micro_batch_size;
    types::Device& device = scenario.hardware.node.device;
    device.memory_bandwidth = {3e12};
    device.gemm_bf16 = {7e14};
    device.attention_forward_bf16 = device.attention_backward_bf16 = {5e14};
    scenario.hardware.node.copy.device_to_host = scenario.hardware.node.copy.host_to_device =
        types::CopyCurve({{Bytes{1 << 20}, Nanoseconds{20'000}}, {Bytes{2 << 20}, Nanoseconds{40'000}}});
    return scenario;
}

std::vector<std::pair<std::string, Scenario>> models() {
    using namespace layers::testing;
    return {{"Llama", small(llama3_70b())},
            {"Qwen3", small(qwen3_30b_a3b())},
            {"DeepSeek", small(deepseek_v3_dense())},
            {"GPT", small(small_gpt())},
            {"small MoE", small(small_moe())}};
}

TEST(StandIns, LeaveTheProgramAsItIsAndFindWhatTheyRead) {
    for (const auto& [name, scenario] : models()) {
        SCOPED_TRACE(name);
        EXPECT_TRUE(expect_sound(scenario, 0, {}));
        expect_sound(scenario, 0, {.modules = kAll, .min_offloaded_tensor_size = 1});
    }
}

TEST(StandIns, OfEveryShippedScenarioAreSoundOrRefused) {
    int sound = 0;
    for (const auto& file : std::filesystem::directory_iterator(STOWAGE_SOURCE_DIR "/scenarios")) {
        if (file.path().extension() != ".yaml") continue;
        SCOPED_TRACE(file.path().filename().string());
        Scenario scenario = reader::load_scenario(file.path()).scenario;
        if (scenario.parallel.overlap_moe_expert_parallel_comm) continue;
        scenario.offload = {};
        const std::int64_t last = scenario.parallel.pipeline_model_parallel_size - 1;
        for (const std::int64_t rank : {std::int64_t{0}, last}) sound += expect_sound(scenario, rank, {}) ? 1 : 0;
    }
    EXPECT_GT(sound, 40);
}

TEST(StandIns, FindWhatTheyReadUnderRandomGraphsAndOffloading) {
    tests::GraphJobs jobs(tests::property_seed(20261130));
    int sound = 0;
    for (int run = 0; run < 150; ++run) {
        const tests::GraphJobs::Job job = jobs.next();
        if (job.scenario.parallel.overlap_moe_expert_parallel_comm) continue;
        SCOPED_TRACE(tests::text_of(job));
        for (std::int64_t rank = 0; rank < job.scenario.parallel.pipeline_model_parallel_size; ++rank)
            sound += expect_sound(job.scenario, rank, job.choice) ? 1 : 0;
        if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GT(sound, 50);
}

/// Of what layers save for their backwards, what a stand-in wrote and a later one reads.
double read_share(const StageLayers& stage) {
    double saved = 0;
    double read = 0;
    for (const layers::LayerScript& script : stage.scripts) {
        for (const layers::SavedTensor& tensor : script.saved)
            if (!script.tensors[layers::index(tensor.tensor)].persistent)
                saved += static_cast<double>(tensor.bytes().count);
        for (const Kernel& kernel : script.kernels)
            for (std::size_t i = 0; i < kernel.call.sizes.stand_in.reads.size(); ++i)
                if (kernel.call.operands[i].kind == CallOperand::Kind::saved)
                    read += static_cast<double>(kernel.call.sizes.stand_in.reads[i].count);
    }
    return read / saved;
}

TEST(StandIns, ReadMostOfWhatIsSaved) {
    for (const auto& [name, scenario] : models()) {
        StageLayers stage = layers::build_stage(scenario, 0);
        make(stage, scenario);
        const double share = read_share(stage);
        std::cout << name << ": " << 100 * share << " % of the saved bytes are read back\n";
        EXPECT_GT(share, 0.5) << name;
        EXPECT_LE(share, 1.0 + 1e-9) << name;
    }
}

}  // namespace
}  // namespace stowage::program
