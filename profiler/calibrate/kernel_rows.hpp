#pragma once

// Rows for the fits of kernels' rates, and the rate that explains a whole layer. Included by those fits.
//
// Tested by: tests/profiler/calibrate/calibration_test.cpp.

#include <cmath>
#include <optional>
#include <vector>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {

/// Those with blocks whose kind is one of these.
template <class Wanted>
std::vector<const KernelTimes*> cases_of(const Measurements& measurements, const Wanted& wanted) {
    std::vector<const KernelTimes*> cases;
    for (const KernelTimes& times : measurements.kernels)
        if (!times.blocks.empty() && wanted(times.kernel)) cases.push_back(&times);
    return cases;
}

struct Row {
    KernelWork work;
    Block block;
};
inline std::vector<Row> rows_of_cases(const std::vector<const KernelTimes*>& cases) {
    std::vector<Row> rows;
    for (const KernelTimes* times : cases)
        for (const Block& block : times->blocks) rows.push_back({work_of(times->kernel), block});
    return rows;
}

inline Interval interval_of(const FittedParameter& parameter, double factor = 1) {
    return {factor * (parameter.value - parameter.error), factor * parameter.value,
            factor * (parameter.value + parameter.error)};
}

/// The rate at which the layer's kernels of this kind take, by the model, what they took: within a factor of four.
template <class Wanted, class Time>
std::optional<double> rate_of_layer(const MixTimes* mix, double near, const Wanted& wanted, const Time& time) {
    if (mix == nullptr) return std::nullopt;
    const std::vector<double> measured = medians_of(*mix);
    const auto excess = [&](double rate) {
        double sum = 0;
        for (std::size_t i = 0; i < measured.size(); ++i)
            if (wanted(mix->kernels[i])) sum += time(mix->kernels[i], rate) - measured[i];
        return sum;
    };
    double low = near / 4;
    double high = near * 4;
    if (!(excess(low) > 0 && excess(high) < 0)) return std::nullopt;
    while (high / low > 1 + 1e-9) {
        const double middle = std::sqrt(low * high);
        (excess(middle) > 0 ? low : high) = middle;
    }
    return low;
}

}  // namespace stowage::calibrate
