#pragma once

// How much of what a rank computes in a step was measured, scaled or estimated.
//
// Tested by: tests/planner/program/measured_durations_test.cpp, tests/planner/search/duty_test.cpp.

#include <array>
#include <cstdint>
#include <map>
#include <optional>

#include "planner/layers/layer_script.hpp"
#include "planner/program/durations.hpp"

namespace stowage::program {

/// Durations added up.
struct DurationSum {
    std::array<Nanoseconds, layers::kDurationSources> by_source{};
    Nanoseconds uncertain{0};  ///< each one's error, as if all erred the same way
    Nanoseconds unknown{0};    ///< of what nothing tells the error of
    layers::DurationSource worst = layers::DurationSource::measured;
    std::optional<double> worst_error;  ///< the largest of that source, if all of them are known

    [[nodiscard]] Nanoseconds total() const;
    /// uncertain / (total - unknown), of what is known.
    [[nodiscard]] std::optional<double> error() const;
};

struct DurationShares {
    DurationSum all;
    std::map<layers::Part, DurationSum> by_part;
};

/// Kernels of one step of one rank, whatever is offloaded: forwards, forwards that run again (source `recompute` where
/// the forward was measured), backwards, the optimizer.
DurationShares duration_shares(const layers::StageLayers& stage, std::int64_t microbatches, const Durations& durations);

/// What GEMMs and attention take of it.
Nanoseconds multiplying_time(const layers::StageLayers& stage, std::int64_t microbatches, const Durations& durations);

}  // namespace stowage::program
