// Recordings of small models on a device: every operation of the program has its time, nothing is lost, and the groups
// are those that the planner reads off the layers.

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "executor/engine/extra_save.hpp"
#include "executor/engine/raw_steps.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "profiler/record/make_recording.hpp"
#include "scenarios/recording/recording_file.hpp"
#include "tests/executor/engine/execution_requests.hpp"
#include "tests/profiler/record/planned_groups.hpp"

namespace stowage::profiler {
namespace {

using executor::ExecutionRequest;
using program::OperationKind;
using program::RunStage;
using recording::Event;
using recording::Step;
using types::Module;
using types::Scenario;

/// What one operation of a step is called.
using Called = std::tuple<std::string, std::string, std::string, std::int32_t, std::int32_t>;
using Counts = std::map<Called, std::size_t>;

class RecordGpu : public support::GpuTest {};

ExecutionRequest plain_request(const std::string& name) {
    ExecutionRequest request =
        executor::digested_request(executor::shipped_scenario(name), 5, "stowage-record-gemms.json");
    request.digest_every_step = false;
    request.warmup_steps = 3;
    request.record = executor::RecordedSteps{.first = false, .steady = 2};
    return request;
}

ExecutionRequest moving_request(const std::string& name) {
    ExecutionRequest request = executor::under_megatron(plain_request(name), testing::movable_modules());
    request.choice.min_offloaded_tensor_size = 0;
    request.record = executor::RecordedSteps{.first = true, .steady = 0};
    return request;
}

executor::ExecutionResult record(const ExecutionRequest& request) {
    executor::Execution execution(request, {});
    execution.reach_steady();
    execution.record();
    return execution.take();
}

recording::Recording recording_of(executor::ExecutionResult result) {
    recording::Recording header;
    header.step_times = result.measurement.event_times;
    return make_recording(result.recorded_steps, std::move(header));
}

bool gives_time(OperationKind kind) { return kind == OperationKind::compute || kind == OperationKind::copy; }

Called called(const Mark& mark) { return {mark.module, mark.phase, mark.work, mark.layer, mark.microbatch}; }

/// How often the program issues what, in a steady step; what graphs hold where they are launched.
class Program {
public:
    explicit Program(const ExecutionRequest& request)
        : stage_(layers::build_stage(request.scenario, request.pipeline_rank)),
          program_(program::lower(stage_, request.scenario.microbatches(), request.choice, request.scenario.rules,
                                  {request.scenario.hardware, request.scenario.parallel})
                       .program),
          marks_(program_, stage_) {
        const auto& instances = program_.instances(RunStage::steady);
        for (std::uint32_t instance = 0; instance < instances.size(); ++instance) add(instances, instance);
    }
    [[nodiscard]] const Counts& counts() const { return counts_; }

private:
    void add(const std::vector<program::Instance>& instances, std::uint32_t instance) {
        const auto& operations = program_.bodies[program::index(instances[instance].body)].operations;
        for (std::uint32_t i = 0; i < operations.size(); ++i) {
            const Mark mark = marks_.of(RunStage::steady, executor::number_of({instance, i}, false));
            if (gives_time(operations[i].kind)) ++counts_[called(mark)];
            if (operations[i].kind == OperationKind::graph_launch)
                add_graph(program_.graphs[instances[instance].graph], mark);
        }
    }

    void add_graph(const program::Graph& graph, const Mark& launch) {
        const auto& instances = program_.instances(RunStage::capture);
        for (std::uint32_t instance = graph.begin; instance < graph.end; ++instance) {
            const auto& operations = program_.bodies[program::index(instances[instance].body)].operations;
            for (std::uint32_t i = 0; i < operations.size(); ++i) {
                if (!gives_time(operations[i].kind)) continue;
                Mark mark = marks_.of(RunStage::capture, executor::number_of({instance, i}, true));
                if (launch.layer >= 0) mark.layer = launch.layer;
                if (launch.microbatch >= 0) mark.microbatch = launch.microbatch;
                ++counts_[called(mark)];
            }
        }
    }

    layers::StageLayers stage_;
    program::StepProgram program_;
    executor::OperationMarks marks_;
    Counts counts_;
};

/// How often the step has what, of the operations that the program is asked for.
Counts counts_of(const recording::Recording& recording, const Step& step, const Counts& wanted) {
    std::map<Called, std::set<std::uint32_t>> operations;
    for (const Event& event : step.events) {
        const recording::Site& site = recording.sites[event.site];
        const Called name{site.module, site.phase, site.work, event.layer, event.microbatch};
        if (wanted.contains(name)) operations[name].insert(event.operation);
    }
    Counts counts;
    for (const auto& [name, numbers] : operations) counts[name] = numbers.size();
    return counts;
}

void expect_every_operation(const ExecutionRequest& request, const std::string& stage) {
    const recording::Recording recording = recording_of(record(request));
    const Counts expected = Program(request).counts();
    ASSERT_EQ(recording.steps.size(), 2U);
    for (const Step& step : recording.steps) {
        EXPECT_EQ(step.stage, stage);
        EXPECT_EQ(step.dropped, 0U);
        EXPECT_EQ(step.unmatched, 0U);
        EXPECT_GT(step.time.count(), 0);
        EXPECT_EQ(counts_of(recording, step, expected), expected);
    }
    const std::string text = recording::recording_text(recording);
    EXPECT_EQ(recording::recording_text(recording::parse_recording(text, "r.json")), text);
    std::cout << request.scenario.name << ", " << stage << ": " << expected.size() << " kinds of operations, "
              << recording.steps[1].events.size() << " events a step, " << text.size() / 1024 << " KiB; step "
              << recording::median(recording.step_times).count() / 1000 << " us, recorded "
              << recording.steps[1].time.count() / 1000 << " us\n";
}

TEST_F(RecordGpu, HasATimeForEveryOperationOfAnEagerStep) {
    for (const char* name : {"dense-tiny", "moe-tiny"}) expect_every_operation(plain_request(name), "eager");
}

TEST_F(RecordGpu, HasATimeForEveryOperationInsideGraphs) {
    using types::CudaGraphModule;
    const auto impl = types::CudaGraphImpl::transformer_engine;
    expect_every_operation(executor::with_graphs(plain_request("dense-tiny"), impl, {CudaGraphModule::attn}), "steady");
    expect_every_operation(
        executor::with_graphs(plain_request("moe-tiny"), impl, {CudaGraphModule::attn, CudaGraphModule::moe_router}),
        "steady");
}

// Steps of one recording are of the same work.
TEST_F(RecordGpu, NumbersOperationsAlikeInEveryStep) {
    const recording::Recording recording = recording_of(record(plain_request("dense-tiny")));
    ASSERT_EQ(recording.steps.size(), 2U);
    std::map<std::uint32_t, std::uint32_t> sites;
    for (const Event& event : recording.steps[0].events) sites[event.operation] = event.site;
    for (const Event& event : recording.steps[1].events) EXPECT_EQ(sites.at(event.operation), event.site);
}

TEST_F(RecordGpu, HasTheGroupsOfTheLayers) {
    for (const char* name : {"dense-tiny", "moe-tiny"}) {
        const ExecutionRequest request = moving_request(name);
        const recording::Recording recording = recording_of(record(request));
        ASSERT_EQ(recording.steps.size(), 1U);
        EXPECT_EQ(recording.steps[0].dropped, 0U);
        const layers::StageLayers stage = layers::build_stage(request.scenario, 0);
        EXPECT_EQ(testing::moved_groups(recording.groups),
                  testing::planned_groups(stage, request.scenario.microbatches(), testing::movable_modules()))
            << name;
    }
}

// What the recording knows comes from the device and the allocator: a tensor that no planner knows of is there.
TEST_F(RecordGpu, ShowsATensorThatAModuleSavesInAddition) {
    ExecutionRequest request = moving_request("dense-tiny");
    const auto plain = testing::kept_groups(recording_of(record(request)).groups);
    request.debug.extra_save = Module::attn_proj;
    const auto rest = testing::difference(testing::kept_groups(recording_of(record(request)).groups), plain);
    EXPECT_EQ(rest.size(), 16U);  // four layers, four microbatches
    for (const auto& [place, bytes] : rest) {
        EXPECT_EQ(std::get<0>(place), "attn_proj");
        EXPECT_EQ(bytes, std::vector<std::int64_t>{executor::kExtraSave.count});
    }
}

}  // namespace
}  // namespace stowage::profiler
