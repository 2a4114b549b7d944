#pragma once

#include "reports/json.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::reports {

/// The machine in the form of a hardware file (schema stowage/hardware/1).
Json hardware_json(const types::Node& node);

}  // namespace stowage::reports
