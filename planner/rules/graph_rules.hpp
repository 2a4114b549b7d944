#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The rules about CUDA graphs and the overlap of expert communication, whether or not anything is offloaded.
std::span<const Rule> graph_rules();

}  // namespace stowage::rules
