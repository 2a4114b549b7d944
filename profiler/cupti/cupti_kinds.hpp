#pragma once

#include <cupti.h>

#include <vector>

#include "profiler/cupti/record_kinds.hpp"

namespace stowage::profiler {

/// CUPTI's kinds that have to be on for ours, each once. Nodes of graphs come by callback and need none.
std::vector<CUpti_ActivityKind> cupti_kinds(RecordKinds kinds);

}  // namespace stowage::profiler
