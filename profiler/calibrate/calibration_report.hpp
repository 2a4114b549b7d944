#pragma once

// A calibration for people, and for programs (schema stowage/calibration/1).
//
// Tested by: tests/profiler/calibrate/calibration_test.cpp, tests/cli/calibrate_test.cpp.

#include <nlohmann/json.hpp>
#include <string>

#include "profiler/calibrate/calibration.hpp"

namespace stowage::calibrate {

using Json = nlohmann::ordered_json;

/// Figures with their intervals beside the base's, and how long each part took; lines of at most 100 characters.
std::string calibration_text(const Calibration& calibration, const Measurements& measurements, const Base& base);

/// Everything: figures, fits with their residuals by case, copies by size and direction, pageable ones too, the layer
/// at each duty cycle, each kernel beside copies, phases and notes.
Json calibration_json(const Calibration& calibration, const Measurements& measurements, const Base& base);

}  // namespace stowage::calibrate
