#include "profiler/calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>

#include "scenarios/types/check.hpp"

namespace stowage::calibrate {
namespace {

constexpr double kNormalSpread = 1.4826;
constexpr double kTail = 0.025;

/// How many values may be left out at either end.
std::size_t values_outside(std::size_t count) {
    double probability = std::pow(0.5, static_cast<double>(count));  // that none lies below the median
    double below = 0;
    std::size_t outside = 0;
    while (outside < count / 2 && below + probability <= kTail) {
        below += probability;
        probability *= static_cast<double>(count - outside) / static_cast<double>(outside + 1);
        ++outside;
    }
    return outside == 0 ? 0 : outside - 1;
}

}  // namespace

double median(std::vector<double> values) {
    STOWAGE_CHECK(!values.empty(), "a median is of at least one value");
    std::ranges::sort(values);
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double robust_spread(const std::vector<double>& values) {
    const double middle = median(values);
    std::vector<double> distances;
    for (const double value : values) distances.push_back(std::abs(value - middle));
    return kNormalSpread * median(distances);
}

Interval median_interval(std::vector<double> values) {
    const double middle = median(values);
    std::ranges::sort(values);
    const std::size_t outside = values_outside(values.size());
    return {values[outside], middle, values[values.size() - 1 - outside]};
}

}  // namespace stowage::calibrate
