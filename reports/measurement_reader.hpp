#pragma once

#include <string>

#include "reports/json.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::reports {

/// From a document that measurement_json wrote back to the measurement. A loss that was not finite is NaN.
/// Throws: types::InputError naming `file` and the path of the first value that is missing or of another kind
/// (`memory[1].device_calls: found "x", expected a whole number from 0`).
recording::Measurement read_measurement(const Json& document, const std::string& file);

}  // namespace stowage::reports
