#pragma once

#include <chrono>
#include <cstdint>

#include "scenarios/types/bytes.hpp"

namespace stowage::types {

/// Whole nanoseconds everywhere inside: CUPTI gives them, and integers make runs repeatable.
using Nanoseconds = std::chrono::nanoseconds;

/// The clock of a step, simulated or measured: ticks whole nanoseconds from the start of the step.
struct SimClock {
    using duration = Nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<SimClock>;
    static constexpr bool is_steady = true;
};
using SimTime = SimClock::time_point;

static_assert(!Addable<SimTime, SimTime>);
static_assert(Addable<SimTime, Nanoseconds>);

/// Decimal: 1 GB/s is 1e9 bytes a second.
struct BytesPerSecond {
    double rate = 0;
};

/// Floating-point operations a second: 1 TFLOP/s is 1e12.
struct FlopsPerSecond {
    double rate = 0;
};

constexpr double in_microseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e3; }
constexpr double in_milliseconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

/// The time `size` takes at `rate`, rounded up to whole nanoseconds; the one place that rounds bytes to time.
/// Throws: std::logic_error if the rate is not positive; UnsupportedError if it is more than an hour.
Nanoseconds transfer_time(Bytes size, BytesPerSecond rate);

/// The time `flops` take at `rate`, rounded up to whole nanoseconds.
/// Throws: std::logic_error if the rate is not positive; UnsupportedError if it is more than an hour.
Nanoseconds compute_time(double flops, FlopsPerSecond rate);

}  // namespace stowage::types
