#pragma once

// A hardware file (schema stowage/hardware/1) as text, laid out as the shipped ones are.
//
// Tested by: tests/profiler/calibrate/hardware_yaml_test.cpp, which reads it back through scenarios/reader.

#include <filesystem>
#include <string>

#include "profiler/calibrate/calibration.hpp"

namespace stowage::calibrate {

/// The same calibration gives the same bytes. `remark` is the comment at its head, without `#`.
std::string hardware_yaml(const Calibration& calibration, const std::string& remark);

/// Reads the file that figures are taken from which are not measured, with its sources.
/// Throws: types::InputError.
Base read_base(const std::filesystem::path& path);

}  // namespace stowage::calibrate
