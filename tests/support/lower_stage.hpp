#pragma once

#include "planner/program/lowering.hpp"

namespace stowage::tests {

/// Lowers a stage for a made-up machine: copies of 20 us a MiB, 1 TB/s of memory.
program::Lowered lower_stage(const layers::StageLayers& stage, std::int64_t microbatches,
                             const types::OffloadChoice& choice, types::RuleSet rules = types::RuleSet::main_2026_08);

}  // namespace stowage::tests
