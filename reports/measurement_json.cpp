#include "reports/measurement_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/outcome_json.hpp"
#include "reports/scenario_json.hpp"
#include "reports/version.hpp"

namespace stowage::reports {
namespace {

using recording::Measurement;
using types::Nanoseconds;

/// JSON has no number for what is not finite.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <class Value>
Json or_null(const std::optional<Value>& value) {
    return value ? Json(*value) : Json(nullptr);
}

std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }

/// Four answers a hexadecimal digit, the first one its highest bit; the last digit is filled up with zeros.
std::string bits_text(const std::vector<bool>& bits) {
    constexpr std::size_t kBitsOfDigit = 4;
    std::string text((bits.size() + kBitsOfDigit - 1) / kBitsOfDigit, '0');
    for (std::size_t digit = 0; digit < text.size(); ++digit) {
        unsigned value = 0;
        for (std::size_t bit = 0; bit < kBitsOfDigit; ++bit) {
            const std::size_t at = digit * kBitsOfDigit + bit;
            value = 2 * value + (at < bits.size() && bits[at] ? 1 : 0);
        }
        text[digit] = "0123456789abcdef"[value];
    }
    return text;
}

/// `times` is sorted and not empty.
Json percentile(const std::vector<Nanoseconds>& times, std::size_t percent) {
    return file_microseconds(times[(times.size() * percent + 99) / 100 - 1]);
}

/// Null where nothing was timed.
Json times_json(const std::vector<Nanoseconds>& times) {
    if (times.empty()) return nullptr;
    std::vector<Nanoseconds> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    Json all = Json::array();
    for (const Nanoseconds time : times) all.push_back(file_microseconds(time));
    return {{"median", file_microseconds(recording::median(times))},
            {"smallest", file_microseconds(sorted.front())},
            {"largest", file_microseconds(sorted.back())},
            {"p10", percentile(sorted, 10)},
            {"p90", percentile(sorted, 90)},
            {"all", all}};
}

Json machine_json(const recording::Machine& machine) {
    return {{"device", machine.device},
            {"driver", machine.driver},
            {"runtime", machine.runtime},
            {"cublaslt", machine.cublaslt},
            {"cudnn", machine.cudnn},
            {"multiprocessors", machine.multiprocessors},
            {"memory_bytes", machine.memory.count}};
}

Json samples_json(const std::vector<recording::DeviceSample>& samples) {
    Json list = Json::array();
    for (const recording::DeviceSample& sample : samples)
        list.push_back({{"when", sample.when},
                        {"sm_clock_mhz", or_null(sample.sm_clock_mhz)},
                        {"memory_clock_mhz", or_null(sample.memory_clock_mhz)},
                        {"power_watts", or_null(sample.power_watts)},
                        {"temperature_celsius", or_null(sample.temperature_celsius)},
                        {"throttle_reasons", sample.throttle_reasons}});
    return list;
}

Json stages_json(const std::vector<recording::StageMemory>& stages) {
    Json list = Json::array();
    for (const recording::StageMemory& stage : stages)
        list.push_back({{"stage", stage.stage},
                        {"peak_allocated_bytes", stage.peak_allocated.count},
                        {"peak_reserved_bytes", stage.peak_reserved.count},
                        {"driver_used_bytes", stage.driver_used.count},
                        {"device_calls", stage.device_calls}});
    return list;
}

Json digests_json(const Measurement& measurement) {
    Json buffers = Json::array();
    for (const recording::Digest& digest : measurement.digests)
        buffers.push_back({{"name", digest.name}, {"digest", hexadecimal(digest.value)}});
    return {
        {"run", hexadecimal(measurement.run_digest)}, {"steps", measurement.digested_steps}, {"last_step", buffers}};
}

Json copies_json(const recording::CopyTime& copies) {
    return {{"bytes", copies.bytes.count},
            {"busy_us", file_microseconds(copies.busy)},
            {"from_16_mib_gb_per_s", number(copies.largest_rate / 1e9)}};
}

Json profile_json(const recording::Profile& profile) {
    Json labels = Json::array();
    for (const recording::LabelTime& label : profile.labels)
        labels.push_back({{"label", label.label},
                          {"stream", label.stream},
                          {"operations", label.operations},
                          {"kernels", label.kernels},
                          {"measured_us", file_microseconds(label.busy)},
                          {"predicted_us", file_microseconds(label.predicted)}});
    return {{"duration_us", file_microseconds(profile.duration)},
            {"main_stream_busy_us", file_microseconds(profile.main_busy)},
            {"exposed_copy_us", file_microseconds(profile.exposed_copy)},
            {"modelled_waits_us", file_microseconds(profile.modelled_waits)},
            {"device_to_host", copies_json(profile.device_to_host)},
            {"host_to_device", copies_json(profile.host_to_device)},
            {"dropped_records", profile.dropped_records},
            {"unmatched_records", profile.unmatched_records},
            {"labels", labels}};
}

Json predicted_json(const PredictedRank& predicted) {
    return {{"step_time_us", file_microseconds(predicted.step_time)},
            {"exposed_copy_us", file_microseconds(predicted.exposed_copy)},
            {"floor_us", file_microseconds(predicted.floor)},
            {"peak_allocated_bytes", predicted.peak_allocated.count},
            {"peak_reserved_bytes", predicted.peak_reserved.count},
            {"pinned_bytes", predicted.pinned.count}};
}

Json error(std::int64_t predicted, std::int64_t measured) {
    if (measured <= 0) return nullptr;
    return static_cast<double>(predicted) / static_cast<double>(measured) - 1;
}

Json errors_json(const MeasuredRun& run) {
    const Measurement& measured = run.measurement;
    const bool timed = run.debug_modes.empty() && !measured.event_times.empty();
    const Nanoseconds step = timed ? recording::median(measured.event_times) : Nanoseconds{0};
    return {{"step_time", error(run.predicted.step_time.count(), step.count())},
            {"peak_allocated", error(run.predicted.peak_allocated.count, measured.steady_peak_allocated.count)},
            {"peak_reserved", error(run.predicted.peak_reserved.count, measured.steady_peak_reserved.count)},
            {"pinned", error(run.predicted.pinned.count, measured.pinned.count)}};
}

Json losses_json(const std::vector<double>& losses) {
    Json list = Json::array();
    for (const double loss : losses) list.push_back(number(loss));
    return list;
}

void add_what_it_is_of(Json& json, const MeasuredRun& run) {
    const Measurement& measurement = run.measurement;
    json["schema"] = kMeasurementSchema;
    json["stowage_version"] = kVersion;
    json["scenario_name"] = measurement.scenario;
    json["implementation"] = measurement.implementation;
    json["rules"] = std::string(types::name_of(run.scenario.rules));
    json["policy"] = measurement.policy;
    json["allocator"] = measurement.allocator;
    json["choice"] = choice_json(run.choice);
    json["pipeline_rank"] = measurement.pipeline_rank;
    json["debug_modes"] = run.debug_modes;
    json["machine"] = machine_json(measurement.machine);
}

}  // namespace

PredictedRank predicted_rank(const search::RankOutcome& rank, const memory::PlannedMemory* planned) {
    PredictedRank predicted;
    predicted.step_time = rank.step_time;
    predicted.exposed_copy = rank.exposed_copy;
    predicted.floor =
        std::max({rank.step_time - rank.exposed_copy, rank.device_to_host_alone, rank.host_to_device_alone});
    predicted.peak_allocated = rank.steady_peak_allocated;
    predicted.peak_reserved = rank.steady_peak_reserved;
    predicted.pinned = rank.pinned_arena;
    if (planned == nullptr) return predicted;
    predicted.peak_allocated = planned->steady_peak;
    predicted.peak_reserved = planned->size();
    return predicted;
}

Json measurement_json(const MeasuredRun& run) {
    const Measurement& measurement = run.measurement;
    Json json;
    add_what_it_is_of(json, run);
    json["warmup_steps"] = measurement.warmup_steps;
    json["samples"] = samples_json(measurement.samples);
    json["step_time_us"] = times_json(measurement.event_times);
    json["wall_time_us"] = times_json(measurement.wall_times);
    json["host_launch_us"] = times_json(measurement.launch_times);
    json["memory"] = stages_json(measurement.memory);
    json["peak_allocated_bytes"] = measurement.steady_peak_allocated.count;
    json["peak_reserved_bytes"] = measurement.steady_peak_reserved.count;
    json["allocator_answers"] = measurement.allocator_answers;
    json["event_answers"] = {{"count", measurement.event_answers.size()},
                             {"bits", bits_text(measurement.event_answers)}};
    json["pinned_bytes"] = measurement.pinned.count;
    json["pinned_placement"] = measurement.pinned_placement;
    json["graphs"] = {{"kind", measurement.graphs},
                      {"captured", measurement.graphs_captured},
                      {"nodes", measurement.graph_nodes},
                      {"launches_per_step", measurement.graph_launches}};
    json["losses"] = losses_json(measurement.losses);
    json["digests"] = digests_json(measurement);
    json["profile"] = measurement.profile ? profile_json(*measurement.profile) : Json(nullptr);
    json["predicted"] = predicted_json(run.predicted);
    json["errors"] = errors_json(run);
    json["scenario"] = scenario_json(run.scenario);
    return json;
}

}  // namespace stowage::reports
