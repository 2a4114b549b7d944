#pragma once

// How far ahead policy `stowage` reloads, and how soon it waits for copies.
//
// Both trade time for memory: a copy that is joined late and a reload that starts early hide behind more kernels, and
// hold their memory for longer. So the smallest value that is as fast as any is the one to take, for each of the two:
// they act on different halves of a step, copies out on the forwards, reloads on the backwards.
//
// Limits: as fast means within a thousandth of the step; values are tried up to 32, not all of them.
//
// Tested by: tests/planner/search/free_pace_test.cpp.

#include <array>
#include <cstdint>

#include "planner/search/job.hpp"

namespace stowage::search {

/// What is tried, from the smallest on.
inline constexpr std::array<std::int64_t, 10> kPaces{1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

/// Step times within this share of the best are equal.
inline constexpr double kAsFast = 0.001;

/// Which of the two are left to the function; the others are as the choice has them.
struct OpenPace {
    bool join_after = true;
    bool reload_ahead = true;
};

/// `choice` with its pace chosen. Cost: a simulation for every value tried. Deterministic.
/// Throws: std::logic_error if `choice` is not one of policy `stowage`.
OffloadChoice choose_pace(const Job& job, OffloadChoice choice, OpenPace open);

}  // namespace stowage::search
