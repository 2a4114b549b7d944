#include "planner/program/measured_durations.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "planner/program/recorded_times.hpp"

namespace stowage::program {
namespace {

using layers::DurationSource;
using layers::Kernel;

/// A spread of fewer ratios than this says nothing.
constexpr std::int64_t kFewestKernels = 3;

/// The same numbers: what they take differs only by the device.
bool same_work(const Kernel& left, const Kernel& right) {
    const auto numbers = [](const Kernel& kernel) {
        return std::tie(kernel.kind, kernel.flops, kernel.traffic, kernel.fp8, kernel.block_scaled, kernel.result,
                        kernel.count, kernel.attention);
    };
    return numbers(left) == numbers(right);
}

/// The layers whose frames run each script, and whether its forward runs twice in one of them.
struct ScriptUse {
    std::vector<std::int32_t> layers;
    bool again = false;
};

std::vector<ScriptUse> uses_of(const layers::StageLayers& stage) {
    std::vector<ScriptUse> uses(stage.scripts.size());
    for (const layers::ChunkLayers& chunk : stage.chunks)
        for (std::size_t frame = 0; frame < chunk.order.size(); ++frame) {
            ScriptUse& use = uses[chunk.order[frame]];
            const auto layer = static_cast<std::int32_t>(chunk.layer_numbers[frame]);
            use.layers.push_back(layer >= 0 ? layer : RecordedTimes::kNoLayer);
            use.again = use.again || runs_again(chunk, frame);
        }
    return uses;
}

/// Logarithms of ratios, weighted by time.
class Ratios {
public:
    void add(Nanoseconds measured, Nanoseconds estimated) {
        if (measured.count() <= 0 || estimated.count() <= 0) return;
        const auto weight = static_cast<double>(measured.count());
        const double ratio = std::log(weight / static_cast<double>(estimated.count()));
        weight_ += weight;
        sum_ += weight * ratio;
        squares_ += weight * ratio * ratio;
        ++kernels_;
    }
    [[nodiscard]] ClassSpread spread() const {
        ClassSpread spread{kernels_, 1, {}, {}};
        if (kernels_ == 0) return spread;
        const double mean = sum_ / weight_;
        spread.ratio = std::exp(mean);
        if (kernels_ < kFewestKernels) return spread;
        spread.spread = std::sqrt(std::max(0.0, squares_ / weight_ - mean * mean));
        spread.distance = std::sqrt(squares_ / weight_);
        return spread;
    }

private:
    double weight_ = 0;
    double sum_ = 0;
    double squares_ = 0;
    std::int64_t kernels_ = 0;
};

double ratio_of(Nanoseconds time, Nanoseconds to) {
    return static_cast<double>(time.count()) / static_cast<double>(std::max<std::int64_t>(1, to.count()));
}

Nanoseconds scaled(Nanoseconds time, double ratio) {
    return Nanoseconds{std::llround(static_cast<double>(time.count()) * ratio)};
}

std::string words_of(const KernelName& name) {
    return std::string(name_of(name.part)) + " " + std::string(name_of(name.phase)) + " \"" + name.work + "\"";
}

}  // namespace

MeasuredDurations::MeasuredDurations(const RecordedOperations& recorded, const std::vector<recording::Site>& sites,
                                     const layers::StageLayers& stage, const Durations& durations) {
    RecordedTimes times(recorded, sites);
    const std::vector<ScriptUse> uses = uses_of(stage);
    for (std::size_t i = 0; i < uses.size(); ++i)
        add(stage.scripts[i], kernel_places(stage.scripts[i], uses[i].again), uses[i].layers, durations, times);
    add(stage.optimizer, kernel_places(stage.optimizer), {RecordedTimes::kOptimizer}, durations, times);
    for (const std::string& name : times.unused())
        differences_.push_back("recorded " + name + ", which the layers of the recorded scenario do not launch" +
                               " or launch less often");
    measure_spreads();
}

void MeasuredDurations::add(const layers::LayerScript& script, const std::vector<KernelPlace>& places,
                            const std::vector<std::int32_t>& layers, const Durations& durations, RecordedTimes& times) {
    for (const KernelPlace& place : places) {
        const Kernel& kernel = script.kernels[place.kernel];
        const std::optional<MeasuredTime> time = times.time_of(layers, place.name);
        if (!time) {
            std::string words = "not recorded: " + words_of(place.name) + " of a " + script.name;
            if (!kernel.measured && (differences_.empty() || differences_.back() != words))
                differences_.push_back(std::move(words));
            continue;
        }
        by_work_.emplace(place.name.work, entries_.size());
        entries_.push_back({place.name, script.kind, kernel, time->time, durations.estimate(kernel, place.name.phase),
                            time->error, time->launches});
    }
}

void MeasuredDurations::measure_spreads() {
    std::map<types::KernelClass, Ratios> ratios;
    Ratios all;
    for (const Entry& entry : entries_) {
        ratios[entry.kernel.kind].add(entry.time, entry.estimate);
        all.add(entry.time, entry.estimate);
    }
    all_ = all.spread();
    for (const auto& [kind, of_class] : ratios) spreads_[kind] = of_class.spread();
}

const ClassSpread& MeasuredDurations::spread(types::KernelClass kind) const {
    const auto found = spreads_.find(kind);
    return found == spreads_.end() || !found->second.spread ? all_ : found->second;
}

// --------------------------------------------------------------------------------------------------------------- apply

void MeasuredDurations::apply(layers::StageLayers& stage, const Durations& durations, bool same_device) const {
    for (layers::LayerScript& script : stage.scripts) apply(script, durations, same_device);
    apply(stage.optimizer, durations, same_device);
}

void MeasuredDurations::apply(layers::LayerScript& script, const Durations& durations, bool same_device) const {
    for (const KernelPlace& place : kernel_places(script))
        if (Kernel& kernel = script.kernels[place.kernel]; !kernel.measured)
            apply(kernel, {place.name, script.kind, durations, same_device});
}

void MeasuredDurations::apply(Kernel& kernel, Wanted wanted) const {
    if (take(kernel, wanted)) return;
    if (wanted.name.phase == layers::Phase::recompute) {
        wanted.name.phase = layers::Phase::forward;
        if (take(kernel, wanted)) {
            if (kernel.source == DurationSource::measured) kernel.source = DurationSource::recompute;
            return;
        }
    }
    kernel.source = DurationSource::estimated;
    kernel.error = spread(kernel.kind).distance;
}

bool MeasuredDurations::take(Kernel& kernel, const Wanted& wanted) const {
    const Entry* const entry = nearest(kernel, wanted);
    if (entry == nullptr) return false;
    if (wanted.same_device && same_work(kernel, entry->kernel)) {
        kernel.measured = entry->time;
        kernel.source = DurationSource::measured;
        kernel.error = entry->error;
        kernel.launches = entry->launches;
        return true;
    }
    const Nanoseconds here = wanted.durations.estimate(kernel, wanted.name.phase);
    kernel.measured = scaled(entry->time, ratio_of(here, estimate_of(*entry, wanted)));
    kernel.source = DurationSource::scaled;
    kernel.error = spread(kernel.kind).spread;
    return true;
}

/// On the device that is planned for if it is the recorded one, however its rates are written in either file.
Nanoseconds MeasuredDurations::estimate_of(const Entry& entry, const Wanted& wanted) const {
    return wanted.same_device ? wanted.durations.estimate(entry.kernel, entry.name.phase) : entry.estimate;
}

const MeasuredDurations::Entry* MeasuredDurations::nearest(const Kernel& kernel, const Wanted& wanted) const {
    using Distance = std::tuple<bool, bool, bool, double>;
    const Entry* nearest = nullptr;
    Distance least;
    const Nanoseconds here = wanted.durations.estimate(kernel, wanted.name.phase);
    const auto [begin, end] = by_work_.equal_range(wanted.name.work);
    for (auto found = begin; found != end; ++found) {
        const Entry& entry = entries_[found->second];
        if (entry.name.part != wanted.name.part || entry.name.phase != wanted.name.phase) continue;
        const double ratio = ratio_of(here, estimate_of(entry, wanted));
        const Distance distance{!same_work(kernel, entry.kernel), entry.script != wanted.script,
                                entry.name.occurrence != wanted.name.occurrence, std::abs(std::log(ratio))};
        if (nearest != nullptr && distance >= least) continue;
        nearest = &entry;
        least = distance;
    }
    return nearest;
}

}  // namespace stowage::program
