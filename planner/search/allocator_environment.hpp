#pragma once

#include <variant>

#include "planner/layers/support.hpp"
#include "planner/memory/allocator_config.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::search {

/// How a scenario's environment sets up PyTorch's caching allocator: PYTORCH_ALLOC_CONF, or the older name
/// PYTORCH_CUDA_ALLOC_CONF where that one is not given. An answer of the second kind names what is wrong with the text.
std::variant<memory::AllocatorConfig, layers::Unsupported> allocator_environment(const types::Scenario& scenario);

}  // namespace stowage::search
