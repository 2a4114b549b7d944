#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// What a terminal shows of a plan (schema stowage/plan/1): verdict, flags, ranks, floor, what simple rules would have
/// given, certificate, rejections, notes. Made from the document alone. At most 100 columns.
/// Throws: Json::exception if a key is missing (see `reading`).
std::string plan_text(const Json& plan);

/// The same of a simulation (schema stowage/simulation/1).
std::string simulation_text(const Json& simulation);

}  // namespace stowage::reports
