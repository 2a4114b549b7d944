#include "planner/program/recorded_times.hpp"

#include <algorithm>
#include <cmath>

namespace stowage::program {
namespace {

using types::Nanoseconds;

/// By its spelling; the last enumerator is the last whose name is not empty.
template <class Enum>
std::optional<Enum> named(const std::string& text, Enum last) {
    for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(last); ++i)
        if (name_of(static_cast<Enum>(i)) == text) return static_cast<Enum>(i);
    return std::nullopt;
}

/// Kernels that no script has: they are lowering's own, and take what Durations says.
bool is_of_no_layer(layers::Part part) {
    return part == layers::Part::pipeline || part == layers::Part::offload || part == layers::Part::graph;
}

/// Layers in the mean with equal weight.
class Mean {
public:
    void add(double value) {
        sum_ += value;
        squares_ += value * value;
        ++count_;
    }
    [[nodiscard]] std::int64_t count() const { return count_; }
    [[nodiscard]] double value() const { return sum_ / static_cast<double>(count_); }
    /// Of the mean, as a share of it.
    [[nodiscard]] double standard_error() const {
        const auto count = static_cast<double>(count_);
        const double variance = std::max(0.0, squares_ / count - value() * value()) * count / (count - 1);
        return std::sqrt(variance / count) / value();
    }

private:
    double sum_ = 0;
    double squares_ = 0;
    std::int64_t count_ = 0;
};

}  // namespace

std::optional<KernelName> name_of_site(const recording::Site& site) {
    const auto part = named(site.module, layers::Part::mixer_out_proj);
    const auto phase = named(site.phase, layers::Phase::optimizer);
    if (!part || !phase) return std::nullopt;
    return KernelName{*part, *phase, site.work, 0};
}

RecordedTimes::RecordedTimes(const RecordedOperations& recorded, const std::vector<recording::Site>& sites) {
    std::vector<std::optional<KernelName>> names;
    for (const recording::Site& site : sites) names.push_back(name_of_site(site));
    for (const RecordedOperation& operation : recorded.operations) {
        if (operation.site >= names.size() || !names[operation.site]) continue;
        Key key{operation.layer, *names[operation.site]};
        key.name.occurrence = operation.occurrence;
        if (key.name.phase == layers::Phase::optimizer) key.layer = kOptimizer;
        if (is_of_no_layer(key.name.part)) continue;
        const Nanoseconds gap = operation.gap.value_or(recorded.gap);
        samples_[key].push_back({operation.span + gap, operation.step, operation.beside_copy, operation.launches});
    }
}

/// Without those beside copies, if there are others, and without those far from the middle one.
std::vector<RecordedTimes::Sample> RecordedTimes::usual_ones(std::vector<Sample> samples) {
    const auto alone =
        std::stable_partition(samples.begin(), samples.end(), [](const Sample& sample) { return !sample.beside_copy; });
    if (alone != samples.begin()) samples.erase(alone, samples.end());
    std::vector<Nanoseconds> times;
    for (const Sample& sample : samples) times.push_back(sample.time);
    const Nanoseconds middle = recording::median(times);
    std::erase_if(samples,
                  [middle](const Sample& sample) { return std::chrono::abs(sample.time - middle) > middle / 2; });
    return samples;
}

std::optional<MeasuredTime> RecordedTimes::time_of(const std::vector<std::int32_t>& layers, const KernelName& name) {
    Mean mean;
    std::map<std::uint32_t, Mean> by_step;
    Mean of_layers;
    std::int64_t launches = 0;
    for (const std::int32_t layer : layers) {
        const auto found = samples_.find({layer, name});
        if (found == samples_.end()) continue;
        used_.insert(found->first);
        if (launches == 0) launches = found->second.front().launches;
        Mean of_layer;
        for (const Sample& sample : usual_ones(found->second)) {
            const auto time = static_cast<double>(sample.time.count());
            mean.add(time);
            of_layer.add(time);
            by_step[sample.step].add(time);
        }
        of_layers.add(of_layer.value());
    }
    if (of_layers.count() == 0) return std::nullopt;
    MeasuredTime measured{Nanoseconds{std::llround(of_layers.value())}, {}, launches};
    if (by_step.size() > 1) {
        double farthest = 0;
        for (const auto& [step, value] : by_step)
            farthest = std::max(farthest, std::abs(value.value() / mean.value() - 1));
        measured.error = farthest;
    } else if (mean.count() > 1) {
        measured.error = mean.standard_error();
    }
    return measured;
}

std::set<std::string> RecordedTimes::unused() const {
    std::set<std::string> names;
    for (const auto& [key, samples] : samples_)
        if (!used_.contains(key))
            names.insert(std::string(name_of(key.name.part)) + " " + std::string(name_of(key.name.phase)) + " \"" +
                         key.name.work + "\"");
    return names;
}

}  // namespace stowage::program
