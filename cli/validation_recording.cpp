#include "cli/validation_recording.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "profiler/record/make_recording.hpp"
#include "reports/output_file.hpp"
#include "reports/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recording/recording_file.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kRecordedSteps = 3;

}  // namespace

std::string recording_key(const types::Scenario& scenario, std::int64_t pipeline_rank) {
    return slice_of(scenario) + "-rank" + std::to_string(pipeline_rank);
}

executor::ExecutionRequest recording_request(const executor::ExecutionRequest& configuration) {
    executor::ExecutionRequest request = configuration;
    request.scenario.cuda_graph = {};
    request.choice.modules = {};
    request.choice.free.reset();
    request.choice.delay_until_cuda_graph = false;
    request.policy = "none";
    request.allocator = executor::AllocatorKind::caching;
    request.profile = false;
    request.record = executor::RecordedSteps{.first = false, .steady = kRecordedSteps};
    return request;
}

recording::Recording recording_of(const executor::ExecutionRequest& request, executor::ExecutionResult result) {
    const recording::Measurement& measured = result.measurement;
    recording::Recording header;
    header.source = "stowage";
    header.implementation = measured.implementation;
    header.scenario_name = measured.scenario;
    header.scenario_text = reports::to_text(reports::scenario_json(request.scenario));
    header.pipeline_rank = request.pipeline_rank;
    header.machine = measured.machine;
    header.samples = measured.samples;
    header.step_times = measured.event_times;
    return profiler::make_recording(result.recorded_steps, std::move(header));
}

std::string SliceRecordings::path_of(const std::string& key) const {
    return (fs::path(*folder_) / ("recording-" + key + ".json")).string();
}

void SliceRecordings::add_file(const std::string& path) {
    recording::Recording read = recording::read_recording(path);
    const types::Scenario scenario = reader::read_scenario_text(path + " (its scenario)", read.scenario_text);
    const std::string key = recording_key(scenario, read.pipeline_rank);
    recordings_[key] = std::make_shared<const recording::Recording>(std::move(read));
}

std::shared_ptr<const recording::Recording> SliceRecordings::find(const types::Scenario& scenario,
                                                                  std::int64_t pipeline_rank) {
    const std::string key = recording_key(scenario, pipeline_rank);
    if (const auto found = recordings_.find(key); found != recordings_.end()) return found->second;
    std::error_code ignored;
    auto& recording = recordings_[key];
    if (!folder_ || !fs::is_regular_file(path_of(key), ignored)) return recording;
    try {
        recording = std::make_shared<const recording::Recording>(recording::read_recording(path_of(key)));
    } catch (const types::InputError&) {  // half a file is none: the slice is recorded again
    }
    return recording;
}

void SliceRecordings::keep(const types::Scenario& scenario, std::int64_t pipeline_rank,
                           recording::Recording recording) {
    const std::string key = recording_key(scenario, pipeline_rank);
    if (folder_) reports::write_file(path_of(key), recording::recording_text(recording));
    recordings_[key] = std::make_shared<const recording::Recording>(std::move(recording));
}

}  // namespace stowage::cli
