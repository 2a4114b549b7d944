#pragma once

// For how much of a step a rank's GEMMs and attention run, which their rates follow where the hardware says so
// (types::DutyRate).
//
// Rates and the rest hang together: a GPU that does something else for part of its step multiplies faster, and so does
// something else for a larger part. So a step is simulated with the device's own rates, then with those of the duty it
// had, until the duty stays. Each round takes the distance to a tenth or so.
//
// Worked example: 80 ms of GEMMs and 20 ms of waits; rates 1.2 at a duty of 0.5, 1 at 1. Duties 0.8, then with a rate
// of 1.08 74.1 / 94.1 = 0.787, then with 1.085 73.7 / 93.7 = 0.787.
//
// Of the rank alone, with nothing offloaded: waits for collectives and transfers, and kernels that only move bytes,
// break up a step every few milliseconds, as in the measurement, and are there whatever is offloaded. A pipeline's
// bubble is a long wait, over which a chip saves no power for later; it is left out, as are waits for copies.
//
// Tested by: tests/planner/search/duty_test.cpp. Source: docs/decisions/2026-11-30-rates-by-duty.md.

#include <cstdint>
#include <vector>

#include "planner/search/job.hpp"

namespace stowage::search {

/// Rounds end where the duty moves by no more than this.
inline constexpr double kDutySettled = 0.004;

/// Cost: up to four simulations of the rank.
double settled_duty(const Job& job, std::int64_t pipeline_rank);

/// By pipeline rank; 1 without a simulation where the hardware's rates do not follow the duty.
std::vector<double> settled_duties(const Job& job);

}  // namespace stowage::search
