#pragma once

#include <span>

#include "planner/rules/rule.hpp"

namespace stowage::rules {

/// The rules about the environment of the job. A scenario without `env` says nothing about it and keeps them all.
std::span<const Rule> environment_rules();

}  // namespace stowage::rules
