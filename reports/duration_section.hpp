#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// What was measured, scaled and estimated, by module; nothing for a document without a recording.
std::string duration_section(const Json& document);

}  // namespace stowage::reports
