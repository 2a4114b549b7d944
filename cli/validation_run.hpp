#pragma once

// Runs configurations on a GPU, one after the other in one process, and keeps a measurement file of each.
//
// A file is named after the configuration and its request: all that the measurement depends on. What is there already
// is not run again, so that a run that was broken off goes on where it was. A configuration that fails is told and the
// others go on.
//
// Tested by: tests/cli/validate_run_test.cpp, with a library that runs nothing.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/validation_inputs.hpp"
#include "cli/validation_recording.hpp"
#include "executor/engine/execution.hpp"
#include "reports/comparison.hpp"

namespace stowage::cli {

struct ValidationRunOptions {
    std::optional<std::string> out;         ///< folder of measurements
    std::optional<std::string> gemm_table;  ///< default: gemms.json in that folder
    std::optional<double> time_limit;       ///< seconds: no configuration is begun that would not fit
    bool records = true;                    ///< each slice once, eager and with nothing offloaded
};

/// What became of the configurations.
struct ValidationRunResult {
    std::vector<MeasuredItem> measured;
    std::vector<reports::LeftOutRun> failed;
    std::vector<reports::LeftOutRun> not_run;
};

struct PreparedItem {
    PreparedExecution execution;
    double step = 0;  ///< predicted, of the rank's slice alone, in seconds
};

/// The policy that a configuration's settings ask for, and how it is run where they leave it open: so long that clocks
/// settle, and so few steps that it takes some seconds.
PreparedItem prepare_item(const CommonOptions& common, const ValidationItem& item);

/// The measurements that are there already; what has none is `not_run`.
ValidationRunResult find_measurements(const std::vector<ValidationItem>& items, const ValidationRunOptions& options);

/// Throws: NoDeviceError where there is no library to run with; types::InputError if the folder cannot be written.
ValidationRunResult run_items(const CommonOptions& common, const std::vector<ValidationItem>& items,
                              const ValidationRunOptions& options, SliceRecordings& recordings);

}  // namespace stowage::cli
