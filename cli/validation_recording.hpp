#pragma once

// One eager recording of each slice, nothing offloaded: what the second column of a validation is predicted from.
//
// Tested by: tests/cli/validate_run_test.cpp.

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/validation_inputs.hpp"
#include "executor/engine/execution.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::cli {

/// Of a slice and a pipeline rank: runs with the same key are predicted from the same recording.
std::string recording_key(const types::Scenario& scenario, std::int64_t pipeline_rank);

/// The slice of a configuration, eager, with nothing offloaded, its steps recorded.
executor::ExecutionRequest recording_request(const executor::ExecutionRequest& configuration);

/// What the request gave, as a recording.
recording::Recording recording_of(const executor::ExecutionRequest& request, executor::ExecutionResult result);

/// Recordings by slice: those of the folder of measurements, and those among the inputs.
class SliceRecordings {
public:
    explicit SliceRecordings(std::optional<std::string> folder) : folder_(std::move(folder)) {}

    /// A file of the schema stowage/recording/1. Throws: types::InputError.
    void add_file(const std::string& path);
    /// Null if there is none that is whole. A file that is there is read once.
    std::shared_ptr<const recording::Recording> find(const types::Scenario& scenario, std::int64_t pipeline_rank);
    /// Written to the folder, if there is one.
    void keep(const types::Scenario& scenario, std::int64_t pipeline_rank, recording::Recording recording);

private:
    [[nodiscard]] std::string path_of(const std::string& key) const;

    std::optional<std::string> folder_;
    std::map<std::string, std::shared_ptr<const recording::Recording>> recordings_;  ///< null: looked for in vain
};

}  // namespace stowage::cli
