#pragma once

// The times of a recording by layer and name, for whoever knows the layers.
//
// Tested by: tests/planner/program/measured_durations_test.cpp.

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planner/program/kernel_places.hpp"
#include "planner/program/recorded_operations.hpp"

namespace stowage::program {

/// What one kernel takes, start to start, and how far to trust that.
struct MeasuredTime {
    types::Nanoseconds time{0};
    std::optional<double> error;  ///< share; nothing of a kernel that was recorded once
    std::int64_t launches = 1;    ///< of the first one found
};

/// Without an occurrence; nothing where module or phase is none of ours.
std::optional<KernelName> name_of_site(const recording::Site& site);

class RecordedTimes {
public:
    /// Of the frames that are no transformer layers, and of the optimizer's step.
    static constexpr std::int32_t kNoLayer = -1;
    static constexpr std::int32_t kOptimizer = -2;

    RecordedTimes(const RecordedOperations& recorded, const std::vector<recording::Site>& sites);

    /// Over all these layers, microbatches and steps; nothing if none of them was recorded. What it finds counts as
    /// used.
    std::optional<MeasuredTime> time_of(const std::vector<std::int32_t>& layers, const KernelName& name);

    /// Modules, phases and works that no call has asked for: `core_attn forward "attention"`.
    [[nodiscard]] std::set<std::string> unused() const;

private:
    struct Sample {
        types::Nanoseconds time{0};
        std::uint32_t step = 0;
        bool beside_copy = false;
        std::int32_t launches = 1;
    };
    struct Key {
        std::int32_t layer = kNoLayer;
        KernelName name;
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    static std::vector<Sample> usual_ones(std::vector<Sample> samples);

    std::map<Key, std::vector<Sample>> samples_;
    std::set<Key> used_;
};

}  // namespace stowage::program
