#pragma once

#include <string>

#include "scenarios/reader/read_fields.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

/// Checks across values, once all were read and defaults are filled in. A check whose values could not be read is
/// passed over, so that one mistake is reported once. `root` is the model's path: "model", or "" for a model file.
void check_model(Gathered& gathered, const types::Model& model, const std::string& root);

/// The layout against model, batch and hardware. Conditions are Megatron's: arguments.py, parallel_state.py and the
/// layers' own assertions.
void check_scenario(Gathered& gathered, const types::Scenario& scenario);

}  // namespace stowage::reader
