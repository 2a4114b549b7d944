#pragma once

#include <string>

#include "reports/json.hpp"

namespace stowage::reports {

/// What a terminal shows of a measurement's document: predicted beside measured for the step, its memory and the labels
/// that take longest, then copies, host time, clocks and the digest. At most 100 columns.
std::string measurement_text(const Json& measurement);

}  // namespace stowage::reports
