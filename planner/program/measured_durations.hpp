#pragma once

// Durations of kernels out of a recording.
//
// What was recorded is found by the names that marks carry: module, phase, operation, and the how manieth of that name
// in one layer's pass. Layers of one script do the same work, so that a kernel's time is the mean over all layers that
// share its script, all microbatches and all eager steps: the mean, since a step is the sum of its kernels (the sum of
// medians of skewed times is not). Of one layer's times those are left out that differ from the middle one by more than
// half of it: something else ran on the machine. A kernel's time in the model is start to start, so the device's own
// gap behind it is added (see recorded_operations.hpp).
//
// A kernel of a stage that is planned then takes, the first that there is:
//     measured   the time of the recorded kernel of the same name and the same numbers (class, operations, bytes,
//                attention's work), on the same kind of device
//     recompute  that of the forward which it runs again
//     scaled     that of the same name in another size, or of another device: time x estimate here / estimate there
//     estimated  nothing: the hardware file's
//
// Errors, as shares. measured: how far the means of single steps lie from the mean of all, or, of one step, the
// standard error. scaled: the spread of measured / estimated over the kernels of its class in the recording (standard
// deviation of the logarithm, weighted by time), which is what a ratio of two estimates can be off by. estimated: the
// same ratio's distance from 1 (root mean square of the logarithm). A class with fewer than three recorded kernels
// takes the spread of all of them; a recording of fewer than three says nothing.
//
// Tested by: tests/planner/program/measured_durations_test.cpp.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/kernel_places.hpp"
#include "planner/program/recorded_operations.hpp"
#include "scenarios/recording/recording.hpp"

namespace stowage::program {

class RecordedTimes;

/// How measured times of one class lie beside estimates.
struct ClassSpread {
    std::int64_t kernels = 0;  ///< distinct ones
    double ratio = 1;          ///< measured / estimated, the geometric mean by time
    std::optional<double> spread;
    std::optional<double> distance;  ///< of the ratios from 1
};

class MeasuredDurations {
public:
    /// `stage`: the layers that were recorded, as build_stage makes them of the recorded scenario; `durations`:
    /// estimates for it. Cost: O(events log events).
    MeasuredDurations(const RecordedOperations& recorded, const std::vector<recording::Site>& sites,
                      const layers::StageLayers& stage, const Durations& durations);

    /// Gives every kernel of `stage` its time, source and error. `durations`: estimates for it; `same_device`: recorded
    /// on the device that `durations` describes. What already has a time keeps it.
    void apply(layers::StageLayers& stage, const Durations& durations, bool same_device) const;

    [[nodiscard]] const ClassSpread& spread(types::KernelClass kind) const;
    /// Of all classes together.
    [[nodiscard]] const ClassSpread& spread() const { return all_; }
    /// What the recording has and the scenario's layers do not launch, or launch another number of times, in words.
    [[nodiscard]] const std::vector<std::string>& differences() const { return differences_; }
    /// Kernels of the recorded stage that have times.
    [[nodiscard]] std::int64_t kernels() const { return static_cast<std::int64_t>(entries_.size()); }

private:
    struct Entry {
        KernelName name;
        layers::ScriptKind script{};
        layers::Kernel kernel;
        Nanoseconds time{0};
        Nanoseconds estimate{0};
        std::optional<double> error;
        std::int64_t launches = 1;
    };

    /// A kernel that is planned.
    struct Wanted {
        KernelName name;
        layers::ScriptKind script{};
        const Durations& durations;
        bool same_device = false;
    };

    void add(const layers::LayerScript& script, const std::vector<KernelPlace>& places,
             const std::vector<std::int32_t>& layers, const Durations& durations, RecordedTimes& times);
    void apply(layers::LayerScript& script, const Durations& durations, bool same_device) const;
    void apply(layers::Kernel& kernel, Wanted wanted) const;
    bool take(layers::Kernel& kernel, const Wanted& wanted) const;
    [[nodiscard]] Nanoseconds estimate_of(const Entry& entry, const Wanted& wanted) const;
    [[nodiscard]] const Entry* nearest(const layers::Kernel& kernel, const Wanted& wanted) const;
    void measure_spreads();

    std::vector<Entry> entries_;
    std::multimap<std::string, std::size_t> by_work_;  ///< of Kernel::name
    std::map<types::KernelClass, ClassSpread> spreads_;
    ClassSpread all_;
    std::vector<std::string> differences_;
};

}  // namespace stowage::program
