#pragma once

#include <string>
#include <vector>

#include "planner/memory/planned_memory.hpp"
#include "planner/search/job.hpp"
#include "reports/json.hpp"
#include "scenarios/recording/measurement.hpp"

namespace stowage::reports {

inline constexpr const char* kMeasurementSchema = "stowage/measurement/1";

/// What the simulation of the same choice says of a steady step of the rank that was measured.
struct PredictedRank {
    types::Nanoseconds step_time{0};
    types::Nanoseconds exposed_copy{0};
    /// What no other order of the same copies could undercut: the step less what its main stream waits for copies
    /// (kernels slowed by copies as they are), and no less than the copies of either direction back to back.
    types::Nanoseconds floor{0};
    types::Bytes peak_allocated;
    types::Bytes peak_reserved;
    types::Bytes pinned;
};

/// `planned`: the addresses of allocator `planned`; null for the caching one, which the simulation has.
PredictedRank predicted_rank(const search::RankOutcome& rank, const memory::PlannedMemory* planned);

/// A measurement and what it is of.
struct MeasuredRun {
    recording::Measurement measurement;
    types::Scenario scenario;
    types::OffloadChoice choice;
    /// Modes that show faults and cost time: spin, poison, fences. With any of them no time here is a step time.
    std::vector<std::string> debug_modes;
    PredictedRank predicted;
};

/// The measurement as its file (schema stowage/measurement/1): the same run is the same bytes. Beside what was measured
/// it holds what was predicted for the same choice, rank and implementation, the errors (predicted / measured - 1; null
/// where nothing was measured or nothing can be said), and the scenario, resolved. Digests are 16 hexadecimal digits.
/// A percentile of a list of times is one of its values: the smallest that so many of them do not exceed.
Json measurement_json(const MeasuredRun& run);

}  // namespace stowage::reports
