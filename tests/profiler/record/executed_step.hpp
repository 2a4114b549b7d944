#pragma once

// The first iteration of a rank as the executor's interpreter runs it on a machine that does nothing: what happens to
// memory, and under which marks.

#include "planner/layers/layer_script.hpp"
#include "profiler/cupti/raw_events.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::profiler::testing {

/// Everything that these modules save leaves. Times count the memory events.
RawStep first_iteration(const types::Scenario& scenario, const layers::StageLayers& stage,
                        const types::ModuleSet& modules);

}  // namespace stowage::profiler::testing
