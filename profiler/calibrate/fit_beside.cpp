#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {
namespace {

constexpr double kLeastCovered = 0.5;
constexpr std::array<Beside, 3> kCopies{Beside::device_to_host, Beside::host_to_device, Beside::both};

using Excesses = std::array<std::vector<double>, kBesides>;

/// Of each round: how much longer a call took than in the block without copies, over the share that copies covered.
/// Rounds that copies hardly covered are left out.
void add_excesses(const BesideTimes& times, Excesses& excesses, double& least_covered) {
    for (const BesideRound& round : times.rounds) {
        const double alone = round.blocks.at(index(Beside::nothing)).block.call_us;
        for (const Beside beside : kCopies) {
            const BesideBlock& block = round.blocks.at(index(beside));
            least_covered = std::min(least_covered, block.covered);
            if (block.covered < kLeastCovered) continue;
            excesses.at(index(beside)).push_back((block.block.call_us / alone - 1) / block.covered);
        }
    }
}

std::array<Interval, kBesides> intervals_of(const Excesses& excesses) {
    std::array<Interval, kBesides> result;
    for (const Beside beside : kCopies)
        if (!excesses.at(index(beside)).empty()) result.at(index(beside)) = median_interval(excesses.at(index(beside)));
    return result;
}

std::string interval_text(const Interval& interval) {
    const char* const doubt = interval.contains(0) ? ", cannot be told from 0" : "";
    return fmt::format("{:.2f} % [{:.2f}, {:.2f}]{}", 100 * interval.middle, 100 * interval.low, 100 * interval.high,
                       doubt);
}

/// To a thousandth of a per cent.
double fraction(const Interval& interval) { return std::max(0.0, std::round(interval.middle * 1e5) / 1e5); }

void fit_class(const Draft& draft, types::KernelClass kernel_class, const Excesses& excesses) {
    const std::string name(types::name_of(kernel_class));
    for (const Beside beside : kCopies)
        if (excesses.at(index(beside)).empty()) return draft.from_base(Section::slowdown, name);
    types::Slowdown& slowdown = draft.node().copy.slowdown[static_cast<int>(kernel_class)];
    const auto found = intervals_of(excesses);
    const Interval& to_host = found.at(index(Beside::device_to_host));
    const Interval& to_device = found.at(index(Beside::host_to_device));
    const Interval& both = found.at(index(Beside::both));
    draft.figure(name + " beside copies to the host", "fraction", to_host, slowdown.under_d2h);
    draft.figure(name + " beside copies from the host", "fraction", to_device, slowdown.under_h2d);
    draft.figure(name + " beside both", "fraction", both, slowdown.under_both);
    slowdown = {fraction(to_host), fraction(to_device), fraction(both)};
    draft.source(
        Section::slowdown, name,
        fmt::format("measured, blocks with and without copies in turn, {} pairs, median and 95 % interval: D2H "
                    "{}; H2D {}; both {}",
                    excesses.at(index(Beside::both)).size(), interval_text(to_host), interval_text(to_device),
                    interval_text(both)));
}

}  // namespace

void fit_beside(const Measurements& measurements, const Draft& draft) {
    std::array<Excesses, types::kKernelClassCount> by_class;
    for (const BesideTimes& times : measurements.beside_copies) {
        Excesses own;
        double covered = 1;
        add_excesses(times, own, covered);
        draft.calibration().beside.push_back({name_of(times.kernel), intervals_of(own), covered});
        Excesses& all = by_class.at(static_cast<std::size_t>(times.kernel_class));
        for (std::size_t i = 0; i < kBesides; ++i)
            all.at(i).insert(all.at(i).end(), own.at(i).begin(), own.at(i).end());
    }
    for (const auto& [kernel_class, name] : types::enum_names<types::KernelClass>())
        fit_class(draft, kernel_class, by_class.at(static_cast<std::size_t>(kernel_class)));
}

}  // namespace stowage::calibrate
