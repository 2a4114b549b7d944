#pragma once

#include <string>
#include <vector>

#include "reports/json.hpp"

namespace stowage::reports {

/// A measurement's document and the file it is from.
struct MeasuredFile {
    std::string file;
    Json document;
};

/// Reads a measurement that is to stand beside `plan`. Throws: types::InputError if it is not one, incomplete, of
/// layers of another implementation (a prediction is compared with a measurement of the same one only), or of another
/// job: scenarios may differ in what they offload and in nothing else.
MeasuredFile measurement_beside(const Json& plan, const std::string& file);

/// Step and memory of each measurement beside what was predicted for its own policy, as a table for a terminal.
std::string measured_section(const std::vector<MeasuredFile>& measurements);

/// The same to compute with: file, rank, policy, allocator, quantity with its unit, predicted, measured, error; a cell
/// is empty where nothing was measured.
std::string measured_csv(const std::vector<MeasuredFile>& measurements);

}  // namespace stowage::reports
