#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The rules about offloading alone, whatever the graphs.
std::span<const Rule> offload_rules();

}  // namespace stowage::rules
