#pragma once

#include "planner/search/job.hpp"
#include "reports/json.hpp"

namespace stowage::reports {

/// The policy in the scenario's words.
Json choice_json(const types::OffloadChoice& choice);

/// The step as a whole, without lower bound. `step_time_us` and the like are null if the choice does not run.
Json predicted_json(const search::Job& job, const search::Outcome& outcome);

/// One entry a pipeline rank; `rank` is the first global rank of the stage, which stands for all of them.
Json ranks_json(const search::Job& job, const search::Outcome& outcome);

/// Why Megatron stops under this choice; empty if it runs.
std::string stop_reason(const search::Outcome& outcome);

}  // namespace stowage::reports
