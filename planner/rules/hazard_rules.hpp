#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// What Megatron accepts and is known to crash or misbehave with, and notes on what it does then.
std::span<const Rule> hazard_rules();

}  // namespace stowage::rules
