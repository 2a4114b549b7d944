#pragma once

#include "planner/search/job.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// Adds to the document of a plan or a simulation what its durations rest on, if the job was given a recording:
/// `durations`, for the rank that computes most, and `predicted.step_time_error`, the share by which the step's time
/// may be off because kernels' durations are. Adds to `notes` what the recorded step kept and the plan does not.
void add_durations(Json& document, const search::Job& job, const search::Outcome* outcome);

}  // namespace stowage::reports
