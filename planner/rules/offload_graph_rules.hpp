#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The rules about offloading beside graphs, and what the building of a layer switches off there.
std::span<const Rule> offload_graph_rules();

}  // namespace stowage::rules
