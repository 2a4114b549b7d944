#pragma once

#include <nlohmann/json_fwd.hpp>

namespace stowage::reader {

/// The JSON Schema (draft 2020-12) of each kind of file, written from the same description as the reader's, for
/// editors and other tools. What it cannot say, such as which sizes divide, only the reader checks.
nlohmann::json scenario_schema();
nlohmann::json model_schema();
nlohmann::json hardware_schema();

}  // namespace stowage::reader
