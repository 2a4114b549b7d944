// A library as libstowage_gpu.so, without a GPU: it runs nothing, and answers with a result that only depends on what
// it was asked, or with the error that STOWAGE_FAKE_ERROR names. STOWAGE_FAKE_REQUEST names a file in which it writes
// down what it was asked.
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "cli/gpu/gpu_verbs.hpp"
#include "cli/gpu/gpu_version.hpp"
#include "executor/engine/out_of_memory.hpp"
#include "executor/engine/raw_steps.hpp"
#include "planner/layers/stage.hpp"
#include "planner/program/lowering.hpp"
#include "tests/profiler/calibrate/fake_bench.hpp"

namespace stowage::cli {
namespace {

using executor::ExecutionRequest;
using executor::ExecutionResult;
using types::Bytes;
using types::Nanoseconds;

std::string_view environment(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? "" : value;
}

/// How many kernels stand in, of all layers that the rank has, and how long they are in all.
void write_stand_ins(std::ofstream& file, const layers::StageLayers& stage) {
    std::size_t kernels = 0;
    Nanoseconds length{0};
    for (const layers::LayerScript& script : stage.scripts)
        for (const layers::Kernel& kernel : script.kernels) {
            kernels += kernel.call.call == layers::Call::stand_in ? 1U : 0U;
            length += kernel.call.sizes.stand_in.length;
        }
    file << "stand_ins " << kernels << "\nstand_in_ns " << length.count() << "\n";
}

void write_down(const ExecutionRequest& request) {
    const std::string_view path = environment("STOWAGE_FAKE_REQUEST");
    if (path.empty()) return;
    const bool appends = request.record || !environment("STOWAGE_FAKE_APPEND").empty();  // of several runs
    std::ofstream file{std::string(path), appends ? std::ios::app : std::ios::trunc};
    if (request.record) file << "first " << request.record->first << "\nrecorded " << request.record->steady << "\n";
    file << "rank " << request.pipeline_rank << "\npolicy " << request.policy << "\nallocator "
         << types::name_of(request.allocator) << "\nexpandable_segments " << request.caching_config.expandable_segments
         << "\nsteps " << request.steps << "\nwarmup " << request.warmup_steps << "\nwarmup_seconds "
         << request.warmup_seconds << "\nseed " << request.seed << "\nverify " << request.digest_every_step
         << "\nprofile " << request.profile << "\ngemm_table " << request.gemm_table.value_or("-") << "\nspin "
         << (request.debug.spin_seed ? std::to_string(*request.debug.spin_seed) : "-") << "\npoison "
         << request.debug.poison << "\nfences " << request.debug.fences << "\nmodules "
         << request.choice.modules.joined() << "\n";
    if (request.stand_ins) write_stand_ins(file, *request.stand_ins);
    if (!request.choice.free) return;
    file << "reload_ahead " << request.choice.free->reload_ahead << "\njoin_after " << request.choice.free->join_after
         << "\n";
    for (std::size_t layer = 0; layer < request.choice.free->by_layer.size(); ++layer)
        file << "layer " << layer << " " << request.choice.free->by_layer[layer].joined() << "\n";
}

void fail_if_asked(const ExecutionRequest& request = {}) {
    const std::string_view kind = environment("STOWAGE_FAKE_ERROR");
    if (kind == "device") throw types::Error(types::ExitCode::device, "error: there is no device here");
    if (kind == "memory") throw executor::OutOfMemory("device memory", Bytes{3}, Bytes{1}, Bytes{2});
    if (kind == "unsupported") throw types::UnsupportedError("this version cannot execute that");
    if (kind == "input") throw types::InputError("table.json: error: cannot be read");
    if (kind == "planned" && request.allocator == executor::AllocatorKind::planned)
        throw executor::OutOfMemory("device memory", Bytes{3}, Bytes{1}, Bytes{2});
    if (kind == "bug") throw std::logic_error("something that cannot be");
}

/// Kernels and copies of a steady step, one behind the other, a microsecond each.
program::StageTimeline timeline_of(const program::StepProgram& program) {
    program::StageTimeline timeline;
    types::SimTime now{};
    const auto& instances = program.instances(program::RunStage::steady);
    for (std::uint32_t instance = 0; instance < instances.size(); ++instance) {
        const auto& operations = program.bodies[program::index(instances[instance].body)].operations;
        for (std::uint32_t i = 0; i < operations.size(); ++i) {
            const program::OperationKind kind = operations[i].kind;
            if (kind != program::OperationKind::compute && kind != program::OperationKind::copy) continue;
            program::TimelineEntry entry;
            entry.instance = instance;
            entry.operation = i;
            entry.stream = operations[i].stream;
            entry.start = now;
            entry.end = now += Nanoseconds{1000};
            timeline.entries.push_back(entry);
        }
    }
    return timeline;
}

recording::Profile profile() {
    recording::Profile profile;
    profile.duration = Nanoseconds{255'000'000};
    profile.main_busy = Nanoseconds{250'000'000};
    profile.exposed_copy = Nanoseconds{1'500'000};
    profile.device_to_host = {Bytes{1 << 30}, Nanoseconds{20'000'000}, 54e9};
    profile.host_to_device = {Bytes{1 << 30}, Nanoseconds{21'000'000}, 52e9};
    profile.labels = {{"fc1", "main", 16, 16, Nanoseconds{60'000'000}, Nanoseconds{66'000'000}},
                      {"attention", "main", 16, 16, Nanoseconds{80'000'000}, Nanoseconds{72'000'000}}};
    return profile;
}

recording::Measurement measurement_of(const ExecutionRequest& request) {
    recording::Measurement measurement;
    measurement.scenario = request.scenario.name;
    measurement.implementation = std::string(types::name_of(request.scenario.implementation));
    measurement.pipeline_rank = request.pipeline_rank;
    measurement.policy = request.policy;
    measurement.allocator = std::string(types::name_of(request.allocator));
    measurement.graphs = "none";
    measurement.machine = {"a fake GPU", "13.0", "13.0", "13.0.2", "9.14.0", 132, Bytes{150'000'000'000}};
    measurement.warmup_steps = request.warmup_steps;
    for (std::int64_t step = 0; step < request.steps && !request.digest_every_step; ++step) {
        measurement.event_times.emplace_back(250'000'000 + 1000 * step);
        measurement.launch_times.emplace_back(1'000'000);
    }
    if (!request.digest_every_step) measurement.wall_times = {Nanoseconds{251'000'000}};
    measurement.samples = {{"before", 1980U, 3201U, 120.5, 40U, {}}, {"timed", 1755U, 3201U, 690, 66U, {"power cap"}}};
    measurement.memory = {{"setup", Bytes{1 << 30}, Bytes{1 << 30}, Bytes{2 << 20}, 3},
                          {"steady", Bytes{2LL << 30}, Bytes{3LL << 30}, Bytes{3LL << 30}, 7}};
    measurement.steady_peak_allocated = Bytes{2LL << 30};
    measurement.steady_peak_reserved = Bytes{3LL << 30};
    measurement.losses = {8.25, 8.5};
    measurement.digests = {{"losses", 0x0123456789abcdef}, {"layer 0 qkv", 1}};
    measurement.run_digest = 0xfedcba9876543210;
    measurement.digested_steps = request.digest_every_step ? request.steps : 1;
    if (request.profile) measurement.profile = profile();
    return measurement;
}

profiler::MemoryEvent memory_event(profiler::MemoryEvent::Kind kind, const program::Operation& copy,
                                   profiler::OperationNumber number) {
    return {kind, (number + 1) << 32, copy.bytes, Nanoseconds{0}, number};
}

/// What the timeline has, each under the operation of its entry; of a first iteration with a storage for every copy to
/// the host.
profiler::RawStep raw_step(const program::StepProgram& program, const layers::StageLayers& stage, bool first) {
    profiler::RawStep step;
    step.stage = first ? "record" : program.graphs.empty() ? "eager" : "steady";
    step.time = Nanoseconds{first ? 0 : 252'000'000};
    step.activities.names = {"", "a fake kernel"};
    for (const program::TimelineEntry& entry : timeline_of(program).entries) {
        const program::Instance& instance = program.instances(program::RunStage::steady)[entry.instance];
        const program::Operation& operation = program.bodies[program::index(instance.body)].operations[entry.operation];
        profiler::Activity activity;
        activity.name = 1;
        activity.start = entry.start - types::SimTime{};
        activity.end = entry.end - types::SimTime{};
        activity.correlation = static_cast<std::uint32_t>(step.activities.activities.size());
        activity.issued_under = executor::number_of({entry.instance, entry.operation}, false);
        if (operation.kind == program::OperationKind::copy) {
            activity.kind = profiler::ActivityKind::copy;
            activity.copy_kind = operation.direction == program::Direction::device_to_host
                                     ? profiler::CopyKind::device_to_host
                                     : profiler::CopyKind::host_to_device;
            activity.bytes = operation.bytes;
            if (first && activity.copy_kind == profiler::CopyKind::device_to_host)
                for (const auto kind : {profiler::MemoryEvent::Kind::allocate, profiler::MemoryEvent::Kind::offloaded})
                    step.memory.push_back(memory_event(kind, operation, activity.issued_under));
        }
        step.activities.activities.push_back(activity);
    }
    executor::OperationMarks(program, stage).resolve(program::RunStage::steady, step);
    return step;
}

/// STOWAGE_FAKE_DEVICE names another device.
calibrate::FakeBench fake_bench() {
    calibrate::FakeBench bench;
    const std::string_view device = environment("STOWAGE_FAKE_DEVICE");
    if (!device.empty()) bench.name_device(std::string(device));
    return bench;
}

class FakeVerbs final : public GpuVerbs {
public:
    ExecutionResult execute(const ExecutionRequest& request, const executor::Progress& progress) override {
        progress("warming up");
        write_down(request);
        fail_if_asked(request);
        const layers::StageLayers stage = layers::build_stage(request.scenario, request.pipeline_rank);
        const program::Durations durations(request.scenario.hardware, request.scenario.parallel);
        const program::Lowered lowered =
            program::lower(stage, request.scenario.microbatches(), request.choice, request.scenario.rules, durations);
        ExecutionResult result;
        result.measurement = measurement_of(request);
        if (request.profile) result.timeline = timeline_of(lowered.program);
        if (!request.record) return result;
        if (request.record->first) result.recorded_steps.push_back(raw_step(lowered.program, stage, true));
        for (std::int64_t i = 0; i < request.record->steady; ++i)
            result.recorded_steps.push_back(raw_step(lowered.program, stage, false));
        return result;
    }
    calibrate::Machine machine() override { return fake_bench().machine(); }
    calibrate::Measurements measure(const calibrate::CampaignOptions& options,
                                    const executor::Progress& progress) override {
        fail_if_asked();
        calibrate::FakeBench bench = fake_bench();
        return calibrate::run_campaign(bench, options, progress);
    }
};

}  // namespace
}  // namespace stowage::cli

extern "C" __attribute__((visibility("default"))) stowage::cli::GpuVerbs* stowage_gpu_verbs() {
    static stowage::cli::FakeVerbs verbs;
    return &verbs;
}

extern "C" __attribute__((visibility("default"))) int stowage_gpu_version() { return stowage::cli::kGpuVerbsVersion; }
