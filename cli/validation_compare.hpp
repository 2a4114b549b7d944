#pragma once

// From a measurement file to a comparison: the same program is predicted once more, as the executor ran it.

#include <optional>
#include <string>

#include "cli/validation_inputs.hpp"
#include "cli/validation_recording.hpp"
#include "reports/comparison.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::cli {

/// What predictions are made from, besides what a measurement says of itself.
struct PredictionSources {
    std::optional<types::Node> hardware;    ///< in place of the scenario's machine
    SliceRecordings* recordings = nullptr;  ///< null: there is no second column
};

/// The machine that a scenario is predicted on: `hardware`, with the scenario's links and sizes, since the delays that
/// stand for other ranks came from those.
types::Node machine_for(const types::Scenario& scenario, const PredictionSources& sources);

/// Throws: types::InputError for a file that is no measurement or incomplete; types::Error where nothing can be
/// predicted.
reports::ComparedRun compare_measurement(const MeasuredItem& item, const PredictionSources& sources);

/// The prediction of a configuration that was not measured: quantities without a measured side.
reports::ComparedRun predict_only(const PreparedExecution& prepared, const std::string& name,
                                  const PredictionSources& sources);

}  // namespace stowage::cli
