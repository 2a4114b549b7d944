#pragma once

// What `validate` is given: configurations that can be run, and measurements that were made.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/execute_policy.hpp"
#include "cli/execution.hpp"
#include "reports/json.hpp"
#include "scenarios/reader/validation_file.hpp"

namespace stowage::cli {

/// One configuration. Whether its policy is legal shows only when it is prepared.
struct ValidationItem {
    std::string name;
    std::variant<reader::LoadedScenario, PolicyInput> source;
    reader::RunSettings settings;  ///< the file's, or the command line's for what is no validation file

    [[nodiscard]] const types::Scenario& scenario() const;
    /// 16 hexadecimal digits of all that a measurement depends on: scenario, choice, settings and version.
    [[nodiscard]] std::string request() const;
};

/// A measurement file, or what an execution just gave.
struct MeasuredItem {
    std::string name;
    std::string file;
    reports::Json document;
};

struct ValidationInputs {
    std::vector<ValidationItem> items;
    std::vector<MeasuredItem> measurements;
    std::vector<std::string> recordings;  ///< files
    std::vector<std::string> bars;
};

/// Reads scenarios, plans, validation files, measurements, and folders of them (each file of a folder that is one of
/// these, by name; others are passed over). `settings` hold for scenarios and plans.
/// Throws: types::InputError; CommandLineError for settings where nothing takes them.
ValidationInputs read_validation_inputs(const std::vector<std::string>& inputs, const reader::RunSettings& settings);

/// Digits that are the same for configurations that differ in what is offloaded and captured only.
std::string slice_of(const types::Scenario& scenario);

}  // namespace stowage::cli
