#include "cli/recording_input.hpp"

#include <filesystem>
#include <optional>
#include <vector>

#include "planner/search/recording_use.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recording/recording_file.hpp"
#include "scenarios/types/error.hpp"

namespace stowage::cli {
namespace {

namespace fs = std::filesystem;

/// Where files that the recorded scenario refers to may lie: a recording is shipped in a folder below its scenario's.
std::vector<fs::path> folders_of(const fs::path& recording, const fs::path& input) {
    const fs::path folder = recording.parent_path();
    return {folder, folder / "..", input.parent_path()};
}

types::Scenario recorded_scenario(const recording::Recording& recording, const std::string& path,
                                  const std::string& input) {
    const std::string name = fs::path(path).filename().string() + " (its scenario)";
    std::optional<types::InputError> first;
    for (const fs::path& folder : folders_of(path, input)) {
        try {
            return reader::read_scenario_text((folder / name).string(), recording.scenario_text);
        } catch (const types::InputError& error) {
            if (!first) first = error;
        }
    }
    throw types::InputError(*first);
}

}  // namespace

void use_recording(search::Job& job, const std::string& path, const std::string& input) {
    const recording::Recording recording = recording::read_recording(path);
    const bool injected = recording.scenario_text.empty();
    const types::Scenario recorded = injected ? types::Scenario{} : recorded_scenario(recording, path, input);
    try {
        if (injected)
            search::apply_injected_recording(job, recording);
        else
            search::apply_recording(job, recording, recorded);
    } catch (const types::InputError& error) {
        throw types::InputError(path + ": " + error.what());
    }
}

}  // namespace stowage::cli
