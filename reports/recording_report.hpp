#pragma once

// What a recording says at a glance: the step's time, where it went, what modules keep, and what recording cost.
//
// Tested by: tests/reports/recording_report_test.cpp.

#include <string>

#include "reports/json.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::reports {

inline constexpr const char* kProfileSchema = "stowage/profile/1";

/// Times by module and phase are means over the steps of each stage (record steps have copies only and are left out):
/// sums of activities, which may overlap. Groups by module are means over the groups of the first microbatch.
/// `recording_cost`: the recorded eager steps' mean time over that of the unrecorded ones, less 1; null where one is
/// not timed.
Json recording_summary(const recording::Recording& recording);
/// The same for people.
std::string recording_text(const Json& summary);

}  // namespace stowage::reports
