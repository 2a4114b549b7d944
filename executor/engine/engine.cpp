#include "executor/engine/engine.hpp"

#include <fmt/format.h>
#include <chrono>

#include "executor/cuda/check.hpp"
#include "executor/engine/assignment.hpp"
#include "executor/engine/dump.hpp"
#include "executor/engine/extra_save.hpp"
#include "executor/engine/fenced_memory.hpp"
#include "executor/engine/initialise.hpp"
#include "executor/engine/out_of_memory.hpp"
#include "executor/engine/profile.hpp"
#include "executor/engine/versions.hpp"
#include "executor/workload/kernels/optimizer.hpp"
#include "planner/layers/stage.hpp"
#include "planner/memory/planned_memory.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

using layers::StowageState;
using program::RunStage;
using Clock = std::chrono::steady_clock;

constexpr double kRotaryBase = 10000;

DeviceInfo usable_device() {
    if (const auto reason = no_device_reason()) throw DeviceError("error: nothing can be executed here: " + *reason);
    return current_device();
}

program::Lowered lower(const ExecutionRequest& request, const layers::StageLayers& stage) {
    const types::Scenario& scenario = request.scenario;
    const program::Durations durations(scenario.hardware, scenario.parallel);
    program::Lowered lowered =
        program::lower(stage, scenario.microbatches(), request.choice, scenario.rules, durations);
    if (lowered.chunk_mismatch)
        throw types::UnsupportedError("error: this policy stops with a chunk mismatch in its second iteration (H3)");
    STOWAGE_CHECK(!lowered.program.works.empty(), "the program says what its operations compute");
    return lowered;
}

WorkloadOptions workload_options(const ExecutionRequest& request) {
    WorkloadOptions options;
    options.seed = request.seed;
    options.gemm_table = request.gemm_table.value_or("");
    return options;
}

Nanoseconds since(Clock::time_point start) { return std::chrono::duration_cast<Nanoseconds>(Clock::now() - start); }

layers::StageLayers layers_of(const ExecutionRequest& request) {
    if (request.stand_ins) return *request.stand_ins;
    layers::StageLayers stage = layers::build_stage(request.scenario, request.pipeline_rank);
    if (request.debug.extra_save) save_one_more(stage, *request.debug.extra_save);
    return stage;
}

std::string implementation_of(const ExecutionRequest& request) {
    const std::string name(types::name_of(request.scenario.implementation));
    return request.stand_ins ? "stand-ins for " + name : name;
}

void refuse_with_stand_ins(const ExecutionRequest& request) {
    if (!request.stand_ins) return;
    STOWAGE_CHECK(request.stand_ins->stand_ins, "the layers that stand in have stand-ins");
    if (request.record || request.debug.dump || request.debug.extra_save || request.routing_skew)
        throw types::UnsupportedError(
            "error: stand-ins have no parameters, no routing and no marks: they are neither recorded, dumped nor "
            "routed");
}

/// What the tokens' routing sends, which may be more than what is planned for.
layers::Dimensions routed_dimensions(const ExecutionRequest& request) {
    types::Scenario routed = request.scenario;
    if (request.routing_skew) {
        routed.batch.routing = types::Routing::skewed;
        routed.batch.routing_skew = *request.routing_skew;
    }
    return layers::dimensions_of(routed);
}

std::int64_t gradient_bytes(const types::Scenario& scenario) { return scenario.optimizer.grad_reduce_in_bf16 ? 2 : 4; }

}  // namespace

Execution::Execution(const ExecutionRequest& request, const Progress& progress, PinnedBuffer* kept)
    : request_(request),
      progress_(progress),
      stage_(layers_of(request)),
      lowered_(lower(request, stage_)),
      device_(usable_device()),
      monitor_(device_.pci_bus_id),
      free_before_(device_memory_room().free),
      workload_(workload_options(request)),
      machine_(workload_, request.debug, request.allocator == AllocatorKind::caching),
      events_(machine_.streams()),
      pinned_(kept != nullptr ? *kept : own_pinned_),
      parameters_(stands_in() ? std::vector<PlacedParameter>{} : placed_parameters(stage_)) {
    refuse_with_stand_ins(request);
    if (request.debug.fences && request.allocator == AllocatorKind::planned)
        throw types::UnsupportedError("error: fences need the caching allocator\nhint: --allocator caching");
    if (request.record && request.record->first && request.allocator == AllocatorKind::planned)
        throw types::UnsupportedError("error: a first iteration runs with the caching allocator only");
    if (request.profile || request.record) {
        recorder_.emplace();
        machine_.on_operation([this](OperationId id, bool captured) { attribute(id, captured); });
    }
    describe();
    take_memory();
}

void Execution::say(const std::string& text) const {
    if (progress_) progress_(text);
}

void Execution::describe() {
    recording::Measurement& measurement = result_.measurement;
    measurement.scenario = request_.scenario.name;
    measurement.implementation = implementation_of(request_);
    measurement.pipeline_rank = request_.pipeline_rank;
    measurement.policy = request_.policy;
    measurement.allocator = std::string(types::name_of(request_.allocator));
    measurement.graphs = graphs_text(request_.scenario.cuda_graph);
    measurement.warmup_steps = request_.warmup_steps;
    measurement.machine = {device_.name,
                           cuda_version_text(device_.driver_version),
                           cuda_version_text(device_.runtime_version),
                           cublaslt_version(),
                           cudnn_version(),
                           device_.multiprocessors,
                           device_.total_memory};
}

// -------------------------------------------------------------------------------------------------------------- memory

std::unique_ptr<StepMemory> Execution::make_memory() {
    if (request_.allocator == AllocatorKind::caching) {
        auto caching = caching_memory(request_.caching_config, device_memory_, events_);
        return request_.debug.fences ? fenced_memory(std::move(caching)) : std::move(caching);
    }
    memory::PlannedMemory plan = memory::plan_memory(lowered_.program);
    arena_ = DeviceBuffer(plan.size());
    return planned_memory(std::move(plan), reinterpret_cast<Address>(arena_.data()));
}

/// Memory that was kept may be larger than what is needed.
void Execution::pin(Bytes needed) {
    if (pinned_.size() >= needed) return;
    const Bytes size = std::max(needed, request_.keep_pinned.value_or(Bytes{}));
    say(fmt::format("pinning {:.2f} GiB of host memory", types::in_gib(size)));
    pinned_ = {};  // before there is another
    pinned_ = PinnedBuffer(size);
}

void Execution::take_memory() {
    memory_ = make_memory();
    PinnedLayout layout(lowered_.program, request_.allocator == AllocatorKind::caching);
    pin(layout.size());
    result_.measurement.pinned = layout.size();
    result_.measurement.pinned_placement = pinned_.placement();
    interpreter_ = std::make_unique<Interpreter>(lowered_.program, machine_, *memory_, std::move(layout),
                                                 reinterpret_cast<Address>(pinned_.data()));
}

void Execution::note_memory(RunStage stage) {
    static constexpr std::array<const char*, program::kRunStageCount> kNames{"setup", "record", "eager", "capture",
                                                                             "steady"};
    const MemoryCounts counts = memory_->counts();
    const Bytes used = free_before_ - device_memory_room().free;
    result_.measurement.memory.push_back({kNames[static_cast<std::size_t>(stage)], counts.peak_allocated,
                                          counts.peak_reserved, used, counts.device_calls});
}

// -------------------------------------------------------------------------------------------------------------- stages

/// What is issued from here on belongs to the operation, while that is asked for.
void Execution::attribute(profiler::OperationNumber number) {
    if (!attributing_) return;
    if (attributed_) recorder_->pop_operation();
    recorder_->push_operation(number);
    attributed_ = true;
}

void Execution::attribute(OperationId id, bool captured) {
    const profiler::OperationNumber number = number_of(id, captured);
    attribute(captured ? number : in_step(number, recorded_step_));
}

void Execution::end_attribution() {
    if (attributed_) recorder_->pop_operation();
    attributing_ = attributed_ = false;
}

void Execution::run_stage(RunStage stage) {
    interpreter_->run(stage);
    machine_.synchronise_all();
    note_memory(stage);
}

/// Weights, a rotary table, and gradients of nothing.
void Execution::set_up() {
    run_stage(RunStage::setup);
    begin_training();
    cudaStream_t stream = machine_.main().get();
    for (const StowageState state : {StowageState::gradients, StowageState::losses}) clear(state);
    const types::Model& model = request_.scenario.model;
    // Plain angles, also where the model scales them (YaRN): time and memory are the same.
    const std::int64_t turned = model.multi_latent_attention ? model.qk_pos_emb_head_dim : model.kv_channels;
    if (const Address table = interpreter_->state(StowageState::rotary_table))
        workload_.fill_rotary_table(pointer(table), request_.scenario.batch.seq_length, turned, kRotaryBase, stream);
    assign_experts();
    digests_ = make_digests();
    interpreter_->before_clear([this] {
        if (!digesting_) return;
        digests_->issue(machine_.main());
        if (request_.debug.dump && digests_->steps() == 0) dump();
    });
    machine_.synchronise_all();
}

std::unique_ptr<GradientDigests> Execution::make_digests() const {
    const Address gradients = interpreter_->state(StowageState::gradients);
    if (stands_in()) {
        auto digests = std::make_unique<GradientDigests>();
        digests->add("sums of stand-ins", gradients, interpreter_->state_bytes(StowageState::gradients));
        return digests;
    }
    auto digests =
        std::make_unique<GradientDigests>(parameters_, gradients, gradient_bytes(request_.scenario),
                                          interpreter_->state(StowageState::losses), request_.scenario.microbatches());
    if (const Address master = interpreter_->state(StowageState::master_parameters))
        digests->add("main parameters", master, interpreter_->state_bytes(StowageState::master_parameters));
    return digests;
}

/// Parameters and what the optimizer knows of them, as before the first step; sums of stand-ins, which no step clears.
void Execution::begin_training() {
    if (stands_in()) clear(StowageState::gradients);
    clear(StowageState::parameters);  // also between them: the optimizer goes over all of it
    const Address weights = interpreter_->state(StowageState::parameters);
    cudaStream_t stream = machine_.main().get();
    std::uint64_t number = 0;
    for (const PlacedParameter& parameter : parameters_) {
        void* const place = pointer(weights + static_cast<Address>(2 * parameter.place));
        ++number;
        if (parameter.initial == InitialValue::uniform)
            kernels::fill_uniform(place, parameter.elements, request_.seed, number, kInitialLimit, stream);
        else
            kernels::fill_constant(place, parameter.elements, parameter.initial == InitialValue::one ? 1.0F : 0.0F,
                                   stream);
    }
    const Address master = interpreter_->state(StowageState::master_parameters);
    if (master == 0 || stands_in()) return;
    kernels::widen(pointer(weights), static_cast<float*>(pointer(master)),
                   interpreter_->state_bytes(StowageState::master_parameters).count / 4, stream);
    check(cudaGetLastError(), "making main parameters");
    for (const StowageState state : {StowageState::first_moment, StowageState::second_moment}) clear(state);
}

void Execution::clear(StowageState state) {
    if (interpreter_->state(state) == 0) return;
    check(cudaMemsetAsync(pointer(interpreter_->state(state)), 0,
                          static_cast<std::size_t>(interpreter_->state_bytes(state).count), machine_.main().get()),
          "clearing a state");
}

void Execution::assign_experts() {
    const Address assignment = interpreter_->state(StowageState::assignment);
    if (assignment == 0) return;
    const std::vector<std::int32_t> experts = forced_assignment(routed_dimensions(request_), request_.seed);
    const std::size_t bytes = experts.size() * sizeof(std::int32_t);
    STOWAGE_CHECK(interpreter_->state_bytes(StowageState::assignment) == Bytes{static_cast<std::int64_t>(bytes)},
                  "every token has its experts");
    check(cudaMemcpy(pointer(assignment), experts.data(), bytes, cudaMemcpyHostToDevice),
          "assigning tokens to experts");
}

void Execution::dump() {
    machine_.synchronise_all();
    write_dump(
        *request_.debug.dump, request_,
        {parameters_, interpreter_->state(StowageState::parameters), interpreter_->state(StowageState::gradients),
         interpreter_->state_bytes(StowageState::gradients), losses(), interpreter_->state(StowageState::assignment),
         interpreter_->state_bytes(StowageState::assignment)});
}

/// Every distinct call is made ready before anything is captured or timed.
void Execution::prepare_calls() {
    say("choosing algorithms");
    std::vector<CallShape> calls;
    for (const program::Work& work : lowered_.program.works)
        if (work.call != layers::Call::none) calls.push_back({work.call, work.sizes});
    for (const PreparedAttention& attention : workload_.prepare(calls))
        say(fmt::format("{}: {} bytes of workspace for all heads, {} used in {} parts",
                        layers::name_of(attention.shape.call), attention.workspace.whole_bytes,
                        attention.workspace.used_bytes, attention.workspace.parts));
}

/// Planned memory has no place for them.
void Execution::run_first_iterations() {
    if (request_.allocator == AllocatorKind::planned) return;
    for (const RunStage stage : {RunStage::record, RunStage::eager}) {
        if (lowered_.program.instances(stage).empty()) continue;
        workload_.begin_step(steps_run_++, machine_.main().get());
        if (stage == RunStage::record && request_.record && request_.record->first)
            record_first();
        else
            run_stage(stage);
    }
}

void Execution::reach_steady() {
    prepare_calls();
    set_up();
    run_first_iterations();
    if (request_.record && !records_steady()) return;
    if (lowered_.program.graphs.empty()) return;
    say(fmt::format("capturing {} graphs", lowered_.program.graphs.size()));
    attributing_ = recorder_.has_value();
    run_stage(RunStage::capture);
    end_attribution();
    result_.measurement.graphs_captured = machine_.graphs();
    result_.measurement.graph_nodes = machine_.graph_nodes();
}

void Execution::step() {
    workload_.begin_step(steps_run_++, machine_.main().get());
    interpreter_->run(RunStage::steady);
    if (digesting_ && stands_in()) digests_->issue(machine_.main());  // nothing in a step clears what they add to
}

// --------------------------------------------------------------------------------------------------------- measurement

void Execution::sample(const std::string& when) {
    const DeviceState state = monitor_.read();
    recording::DeviceSample sample{
        when, state.sm_clock_mhz, state.memory_clock_mhz, state.power_watts, state.temperature_celsius, {}};
    if (state.throttle_reasons) sample.throttle_reasons = throttle_names(*state.throttle_reasons);
    result_.measurement.samples.push_back(std::move(sample));
}

void Execution::warm_up() {
    sample("before");
    const Clock::time_point start = Clock::now();
    std::int64_t steps = 0;
    while (steps < request_.warmup_steps ||
           std::chrono::duration<double>(Clock::now() - start).count() < request_.warmup_seconds) {
        step();
        if (++steps % 4 == 0) machine_.synchronise_all();
    }
    machine_.synchronise_all();
    result_.measurement.warmup_steps = steps;
    sample("warm");
}

void Execution::time_steps() {
    recording::Measurement& measurement = result_.measurement;
    std::vector<Event> marks;
    for (std::int64_t i = 0; i <= request_.steps; ++i) marks.emplace_back(EventTiming::on);
    machine_.reset_launches();
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < request_.steps; ++i) {
        marks[static_cast<std::size_t>(i)].record(machine_.main());
        step();
        if (i == request_.steps / 2) sample("timed");
    }
    marks.back().record(machine_.main());
    machine_.synchronise_all();
    measurement.wall_times.push_back(since(start) / std::max<std::int64_t>(request_.steps, 1));
    for (std::size_t i = 0; i + 1 < marks.size(); ++i)
        measurement.event_times.push_back(elapsed(marks[i].ref(), marks[i + 1].ref()));
    measurement.graph_launches = machine_.graph_launches() / std::max<std::int64_t>(request_.steps, 1);
    sample("after");
    note_memory(RunStage::steady);
    measurement.steady_peak_allocated = measurement.memory.back().peak_allocated;
    measurement.steady_peak_reserved = measurement.memory.back().peak_reserved;
    for (const EventAnswer& answer : events_.answers()) measurement.event_answers.push_back(answer.done);
}

/// Each step on an idle device, so that the host never waits for it: steps of more than a thousand launches fill the
/// stream's queue and are bounded from above only.
void Execution::time_launches() {
    machine_.count_host_time(true);
    for (std::int64_t i = 0; i < request_.launch_steps; ++i) {
        workload_.begin_step(steps_run_++, machine_.main().get());
        machine_.synchronise_all();
        const Clock::time_point issued = Clock::now();
        interpreter_->run(RunStage::steady);
        result_.measurement.launch_times.push_back(since(issued));
        machine_.synchronise_all();
    }
    machine_.count_host_time(false);
    result_.measurement.host_calls = machine_.host_calls();
}

/// From the same data and parameters whatever was run before: step numbers and training begin anew.
void Execution::digest_steps() {
    recording::Measurement& measurement = result_.measurement;
    const std::int64_t steps = request_.digest_every_step ? request_.steps : 1;
    steps_run_ = 0;
    begin_training();
    machine_.synchronise_all();
    digesting_ = true;
    for (std::int64_t i = 0; i < steps; ++i) {
        step();
        measurement.digests = digests_->read();
    }
    digesting_ = false;
    measurement.run_digest = digests_->run_digest();
    measurement.digested_steps = digests_->steps();
    measurement.losses = losses();
    measurement.allocator_answers = static_cast<std::int64_t>(events_.answers().size());
    if (const std::uint64_t broken = machine_.broken_fence_bytes(); broken > 0)
        throw DeviceError(
            fmt::format("error: {} bytes were written outside of the buffers that the program declares", broken));
}

std::vector<double> Execution::losses() const {
    if (stands_in()) return {};
    std::vector<float> values(static_cast<std::size_t>(request_.scenario.microbatches()));
    const Address losses = interpreter_->state(StowageState::losses);
    check(cudaMemcpy(values.data(), pointer(losses), 4 * values.size(), cudaMemcpyDeviceToHost), "reading the losses");
    return {values.begin(), values.end()};
}

profiler::Recording Execution::take_records() {
    machine_.synchronise_all();
    recorder_->stop();
    profiler::Recording recording = recorder_->take();
    if (recording.buffers == 0)
        throw DeviceError(
            "error: CUPTI recorded nothing: another profiler in this process may hold it\n"
            "hint: execute --no-profile measures without it");
    return recording;
}

void Execution::profile_step() {
    if (!recorder_) return;
    say("profiling a step");
    workload_.begin_step(steps_run_++, machine_.main().get());
    machine_.synchronise_all();
    recorder_->start();
    attributing_ = true;
    interpreter_->run(RunStage::steady);
    end_attribution();
    const profiler::Recording recording = take_records();
    const profiler::CorrelatedTimes times = profiler::correlate(recording.activities, recording.node_operations);
    result_.timeline = timeline_of(lowered_.program, times);
    recording::Profile profile = profile_of(lowered_.program, times);
    profile.dropped_records = static_cast<std::int64_t>(recording.dropped);
    profile.unmatched_records = static_cast<std::int64_t>(times.unmatched);
    result_.measurement.profile = std::move(profile);
}

void Execution::measure() {
    say("warming up");
    warm_up();
    if (request_.steps > 0 && !request_.digest_every_step) {
        say("timing");
        time_steps();
        time_launches();
    }
    digest_steps();
    profile_step();
}

}  // namespace stowage::executor
