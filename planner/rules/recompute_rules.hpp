#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The rules about recomputation, alone and beside graphs and offloading.
std::span<const Rule> recompute_rules();

}  // namespace stowage::rules
