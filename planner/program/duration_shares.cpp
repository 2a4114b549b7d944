#include "planner/program/duration_shares.hpp"

#include <cmath>
#include <numeric>

#include "planner/program/kernel_places.hpp"

namespace stowage::program {
namespace {

using layers::DurationSource;

class Shares {
public:
    explicit Shares(const Durations& durations) : durations_(durations) {}

    void add(const layers::LayerScript& script, bool again, std::int64_t times) {
        for (const KernelPlace& place : kernel_places(script, again)) {
            const layers::Kernel& kernel = script.kernels[place.kernel];
            const Nanoseconds time = times * durations_.kernel(kernel, place.name.phase);
            const bool repeated = place.name.phase == layers::Phase::recompute;
            DurationSource source = kernel.source;
            if (repeated && source == DurationSource::measured) source = DurationSource::recompute;
            add(shares_.all, time, source, kernel.error);
            add(shares_.by_part[place.name.part], time, source, kernel.error);
        }
    }

    [[nodiscard]] const DurationShares& shares() const { return shares_; }

private:
    static void add(DurationSum& sum, Nanoseconds time, DurationSource source, std::optional<double> error) {
        if (source > sum.worst || sum.total().count() == 0) {
            sum.worst = source;
            sum.worst_error = error;
        } else if (source == sum.worst) {
            sum.worst_error =
                error && sum.worst_error ? std::optional(std::max(*error, *sum.worst_error)) : std::nullopt;
        }
        sum.by_source[static_cast<std::size_t>(source)] += time;
        if (error)
            sum.uncertain += Nanoseconds{std::llround(static_cast<double>(time.count()) * *error)};
        else
            sum.unknown += time;
    }

    const Durations& durations_;
    DurationShares shares_;
};

/// Calls `visit(script, again, times)` for every use of a script in a step.
template <class Visit>
void for_each_use(const layers::StageLayers& stage, std::int64_t microbatches, const Visit& visit) {
    for (const layers::ChunkLayers& chunk : stage.chunks)
        for (std::size_t frame = 0; frame < chunk.order.size(); ++frame)
            visit(stage.scripts[chunk.order[frame]], runs_again(chunk, frame), microbatches);
    visit(stage.optimizer, false, 1);
}

}  // namespace

Nanoseconds DurationSum::total() const { return std::accumulate(by_source.begin(), by_source.end(), Nanoseconds{0}); }

std::optional<double> DurationSum::error() const {
    const Nanoseconds known = total() - unknown;
    if (known.count() <= 0) return std::nullopt;
    return static_cast<double>(uncertain.count()) / static_cast<double>(known.count());
}

DurationShares duration_shares(const layers::StageLayers& stage, std::int64_t microbatches,
                               const Durations& durations) {
    Shares shares(durations);
    for_each_use(stage, microbatches, [&](const layers::LayerScript& script, bool again, std::int64_t times) {
        shares.add(script, again, times);
    });
    return shares.shares();
}

Nanoseconds multiplying_time(const layers::StageLayers& stage, std::int64_t microbatches, const Durations& durations) {
    Nanoseconds sum{0};
    for_each_use(stage, microbatches, [&](const layers::LayerScript& script, bool again, std::int64_t times) {
        for (const KernelPlace& place : kernel_places(script, again)) {
            const layers::Kernel& kernel = script.kernels[place.kernel];
            if (kernel.kind != types::KernelClass::memory_bound)
                sum += times * durations.kernel(kernel, place.name.phase);
        }
    });
    return sum;
}

}  // namespace stowage::program
