#pragma once

#include "planner/program/schedule.hpp"

namespace stowage::program {

/// Interleaved 1F1B of a rank with several virtual stages. Warm-up and cool-down exchange after every chunk; in between
/// transfers are posted right after their chunk and awaited before the next chunk in the same direction, or exchanged
/// after each pair of forward and backward when transfers do not overlap.
std::vector<ScheduleStep> interleaved_schedule(const PipelineShape& shape);

}  // namespace stowage::program
