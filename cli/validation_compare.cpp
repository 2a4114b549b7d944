#include "cli/validation_compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "executor/engine/memory_replay.hpp"
#include "planner/memory/pinned_demand.hpp"
#include "planner/memory/planned_memory.hpp"
#include "planner/search/recording_use.hpp"
#include "reports/document.hpp"
#include "reports/measurement_reader.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::cli {
namespace {

using reports::Column;
using reports::ComparedQuantity;
using reports::ComparedRun;
using types::Bytes;
using types::Nanoseconds;

constexpr const char* kIdle = "(main stream idle)";

double number(Bytes bytes) { return static_cast<double>(bytes.count); }
double microseconds(Nanoseconds time) { return types::in_microseconds(time); }

/// What a column says of one run.
struct Predicted {
    Nanoseconds step{0};  ///< less what is modelled
    Nanoseconds exposed_copy{0};
    std::array<Nanoseconds, 2> copies{};
    Bytes allocated;
    Bytes reserved;
    Bytes driver;
    Bytes pinned;
    std::map<std::string, Nanoseconds> labels;
    program::StepProgram program;
    memory::AllocatorConfig allocator;
};

/// What a run is predicted from.
struct Configuration {
    types::Scenario scenario;
    types::OffloadChoice choice;
    std::int64_t rank = 0;
    bool planned = false;  ///< fixed addresses
};

std::map<std::string, Nanoseconds> label_times(const search::SliceOutcome& outcome) {
    std::map<std::string, Nanoseconds> labels;
    for (const program::TimelineEntry& entry : outcome.timeline.entries) {
        const program::Operation* const operation = program::operation_of(outcome.program, entry);
        const bool works = operation != nullptr && (operation->kind == program::OperationKind::compute ||
                                                    operation->kind == program::OperationKind::copy);
        if (works) labels[outcome.program.labels[operation->detail]] += entry.end - entry.start;
    }
    const program::StepTimes& times = outcome.times;
    labels[kIdle] = outcome.rank.step_time - times.main_busy - times.exposed_copy - times.modelled_waits;
    return labels;
}

/// `recording`: null where durations are the hardware file's.
Predicted predict_run(const Configuration& configuration, const recording::Recording* recording) {
    search::Job job = search::prepare(configuration.scenario);
    if (recording != nullptr) {
        types::Scenario recorded = reader::read_scenario_text("a recording (its scenario)", recording->scenario_text);
        // One machine ran both, whatever file is given for it now: nothing is to be scaled from device to device.
        recorded.hardware = configuration.scenario.hardware;
        search::apply_recording(job, *recording, recorded);
    }
    auto outcome = search::evaluate_slice(job, configuration.choice, configuration.rank);
    if (!outcome)
        throw types::Error(types::ExitCode::no, "this policy stops with a chunk mismatch in its second iteration (H3)");
    Predicted predicted;
    predicted.step = outcome->rank.step_time - outcome->times.modelled_waits;
    predicted.exposed_copy = outcome->times.exposed_copy;
    predicted.copies = outcome->times.copy_busy;
    predicted.allocated = outcome->rank.steady_peak_allocated;
    predicted.reserved = outcome->rank.steady_peak_reserved;
    predicted.pinned = outcome->rank.pinned_arena;
    if (configuration.planned) {
        const memory::PlannedMemory planned = memory::plan_memory(outcome->program);
        predicted.allocated = planned.steady_peak;
        predicted.reserved = planned.size();
        predicted.pinned = memory::pinned_arena_size(outcome->program, false);
    }
    predicted.driver = predicted.reserved + outcome->rank.executable_graphs;
    predicted.labels = label_times(*outcome);
    predicted.program = std::move(outcome->program);
    predicted.allocator = job.allocator;
    return predicted;
}

// -------------------------------------------------------------------------------------------------------------- rows

ComparedQuantity quantity(const std::string& name, std::optional<double> measured, std::optional<double> predicted) {
    return {name, measured, {predicted, std::nullopt}, std::nullopt};
}

/// Measured steps less the delays in them; nothing where nothing was timed, or delays are not known.
std::optional<double> measured_step(const recording::Measurement& measurement, bool has_waits) {
    if (measurement.event_times.empty() || (has_waits && !measurement.profile)) return std::nullopt;
    const Nanoseconds waits = measurement.profile ? measurement.profile->modelled_waits : Nanoseconds{0};
    return microseconds(recording::median(measurement.event_times) - waits);
}

bool has_delays(const program::StepProgram& program) {
    return std::any_of(program.bodies.begin(), program.bodies.end(), [](const program::Body& body) {
        return std::any_of(body.operations.begin(), body.operations.end(), [](const program::Operation& one) {
            return one.kind == program::OperationKind::collective || one.kind == program::OperationKind::peer_transfer;
        });
    });
}

void add_times(ComparedRun& run, const Predicted& predicted, const recording::Measurement* measurement) {
    std::optional<double> step;
    if (measurement != nullptr) step = measured_step(*measurement, has_delays(predicted.program));
    run.quantities.push_back(quantity("step_time_us", step, microseconds(predicted.step)));
    const recording::Profile* const profile =
        measurement != nullptr && measurement->profile ? &*measurement->profile : nullptr;
    const auto from_profile = [&](Nanoseconds recording::Profile::*time) -> std::optional<double> {
        if (profile == nullptr) return std::nullopt;
        return microseconds(profile->*time);
    };
    ComparedQuantity exposed = quantity("exposed_copy_us", from_profile(&recording::Profile::exposed_copy),
                                        microseconds(predicted.exposed_copy));
    exposed.relative_to = step;
    run.quantities.push_back(exposed);
    const auto copies = [&](const char* name, const recording::CopyTime recording::Profile::*measured,
                            Nanoseconds time) {
        const Nanoseconds busy = profile != nullptr ? (profile->*measured).busy : Nanoseconds{0};
        if (busy.count() == 0 && time.count() == 0) return;
        run.quantities.push_back(
            quantity(name, profile != nullptr ? std::optional(microseconds(busy)) : std::nullopt, microseconds(time)));
    };
    copies("device_to_host_us", &recording::Profile::device_to_host, predicted.copies[0]);
    copies("host_to_device_us", &recording::Profile::host_to_device, predicted.copies[1]);
}

void add_replayed(ComparedRun& run, const Predicted& predicted, const recording::Measurement& measurement) {
    const auto steps = static_cast<std::int64_t>(measurement.event_times.size());
    if (steps == 0) return;
    const auto counts = executor::replay_memory(predicted.program, predicted.allocator, measurement.event_answers,
                                                measurement.warmup_steps + steps);
    if (!counts) return;
    run.quantities.push_back(quantity("allocated_bytes_replayed", number(measurement.steady_peak_allocated),
                                      number(counts->peak_allocated)));
    run.quantities.push_back(
        quantity("reserved_bytes_replayed", number(measurement.steady_peak_reserved), number(counts->peak_reserved)));
}

void add_memory(ComparedRun& run, const Predicted& predicted, const recording::Measurement* measurement, bool replays) {
    const auto measured = [&](Bytes recording::Measurement::*bytes) -> std::optional<double> {
        if (measurement == nullptr) return std::nullopt;
        return number(measurement->*bytes);
    };
    using recording::Measurement;
    run.quantities.push_back(quantity("allocated_bytes_" + run.allocator, measured(&Measurement::steady_peak_allocated),
                                      number(predicted.allocated)));
    run.quantities.push_back(quantity("reserved_bytes_" + run.allocator, measured(&Measurement::steady_peak_reserved),
                                      number(predicted.reserved)));
    if (replays && measurement != nullptr && run.allocator == "caching") add_replayed(run, predicted, *measurement);
    std::optional<double> driver;
    if (measurement != nullptr && !measurement->memory.empty()) driver = number(measurement->memory.back().driver_used);
    run.quantities.push_back(quantity("driver_bytes", driver, number(predicted.driver)));
    run.quantities.push_back(quantity("pinned_bytes", measured(&Measurement::pinned), number(predicted.pinned)));
}

void add_labels(ComparedRun& run, const Predicted& predicted, const recording::Profile& profile) {
    std::map<std::string, Nanoseconds> measured;
    for (const recording::LabelTime& label : profile.labels) measured[label.label] += label.busy;
    measured[kIdle] = profile.duration - profile.main_busy - profile.exposed_copy - profile.modelled_waits;
    for (const auto& [label, time] : predicted.labels)
        run.labels.push_back({label, microseconds(measured[label]), {microseconds(time), std::nullopt}});
}

/// The second column of what has one. What was walked with logged answers is the same whatever things take.
void add_recorded(ComparedRun& run, ComparedRun recorded) {
    const auto second = static_cast<std::size_t>(Column::recording);
    for (ComparedQuantity& one : run.quantities) {
        const ComparedQuantity* const other = recorded.find(one.name);
        one.predicted[second] = other != nullptr ? other->predicted[0] : one.predicted[0];
    }
    for (std::size_t i = 0; i < std::min(run.labels.size(), recorded.labels.size()); ++i)
        if (run.labels[i].label == recorded.labels[i].label)
            run.labels[i].predicted[second] = recorded.labels[i].predicted[0];
}

/// Both columns of what the run has no measured side for, or has.
void add_columns(ComparedRun& run, const Configuration& configuration, const recording::Measurement* measurement,
                 const recording::Recording* recording) {
    const auto add = [&](ComparedRun& column, const Predicted& predicted, bool replays) {
        add_times(column, predicted, measurement);
        add_memory(column, predicted, measurement, replays);
        if (measurement != nullptr && measurement->profile) add_labels(column, predicted, *measurement->profile);
    };
    ComparedRun recorded = run;
    add(run, predict_run(configuration, nullptr), true);
    if (recording == nullptr) return;
    try {
        add(recorded, predict_run(configuration, recording), false);
        add_recorded(run, std::move(recorded));
    } catch (const types::Error& error) {
        run.recording_problem = error.what();
    }
}

Configuration on_machine(types::Scenario scenario, types::OffloadChoice choice, std::int64_t rank, bool planned,
                         const PredictionSources& sources) {
    scenario.hardware.node = machine_for(scenario, sources);
    return {std::move(scenario), std::move(choice), rank, planned};
}

}  // namespace

types::Node machine_for(const types::Scenario& scenario, const PredictionSources& sources) {
    const types::Node& own = scenario.hardware.node;
    if (!sources.hardware) return own;
    types::Node node = *sources.hardware;
    node.gpus_per_node = own.gpus_per_node;
    node.host_memory = own.host_memory;
    node.nvlink = own.nvlink;
    node.network = own.network;
    return node;
}

reports::ComparedRun compare_measurement(const MeasuredItem& item, const PredictionSources& sources) {
    const recording::Measurement measurement = reports::read_measurement(item.document, item.file);
    const reports::PlannedChoice ran = reports::planned_choice(item.document, item.file);
    if (!ran.choice) throw types::InputError(item.file + ": error: choice: found null, expected what was offloaded");
    const std::int64_t last = ran.scenario.parallel.pipeline_model_parallel_size - 1;
    if (measurement.pipeline_rank > last)
        reports::fail_document(item.file, fmt::format("pipeline_rank: found {}, expected a pipeline rank from 0 to {}",
                                                      measurement.pipeline_rank, last));
    ComparedRun run{item.name,
                    slice_of(ran.scenario) + "/" + std::to_string(measurement.pipeline_rank),
                    measurement.pipeline_rank,
                    measurement.policy,
                    measurement.allocator,
                    measurement.graphs,
                    {},
                    {}};
    const auto recording =
        sources.recordings != nullptr ? sources.recordings->find(ran.scenario, measurement.pipeline_rank) : nullptr;
    add_columns(
        run,
        on_machine(ran.scenario, *ran.choice, measurement.pipeline_rank, measurement.allocator == "planned", sources),
        &measurement, recording.get());
    return run;
}

reports::ComparedRun predict_only(const PreparedExecution& prepared, const std::string& name,
                                  const PredictionSources& sources) {
    const executor::ExecutionRequest& request = prepared.request;
    ComparedRun run{name,
                    slice_of(request.scenario) + "/" + std::to_string(request.pipeline_rank),
                    request.pipeline_rank,
                    request.policy,
                    std::string(types::name_of(request.allocator)),
                    executor::graphs_text(request.scenario.cuda_graph),
                    {},
                    {}};
    const auto recording =
        sources.recordings != nullptr ? sources.recordings->find(request.scenario, request.pipeline_rank) : nullptr;
    add_columns(run,
                on_machine(request.scenario, request.choice, request.pipeline_rank,
                           request.allocator == executor::AllocatorKind::planned, sources),
                nullptr, recording.get());
    return run;
}

}  // namespace stowage::cli
