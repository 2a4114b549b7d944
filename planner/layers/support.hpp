#pragma once

#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// Accepts what build_megatron_stage can build exactly; everything else is named.
/// Throws: types::UnsupportedError listing all missing features of the scenario at once.
void require_supported(const types::Scenario& scenario);

}  // namespace stowage::layers
