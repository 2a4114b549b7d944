#include "benchmarks/profiler/cupti/paired_blocks.hpp"

#include <array>
#include <cmath>

namespace stowage::benchmarks {
namespace {

/// Student's t at 97.5 % for 1, 2, ... 30 degrees of freedom, from the usual tables; 1.96 is what it tends to.
double quantile(std::size_t freedom) {
    constexpr std::array kTable = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                   2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                   2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
    return freedom <= kTable.size() ? kTable.at(freedom - 1) : 1.96;
}

}  // namespace

PairedDifference compare(std::span<const double> base, std::span<const double> changed) {
    PairedDifference result;
    result.pairs = base.size();
    const auto count = static_cast<double>(base.size());
    for (std::size_t i = 0; i < base.size(); ++i) result.mean_percent += 100 * (changed[i] / base[i] - 1) / count;
    double squares = 0;
    for (std::size_t i = 0; i < base.size(); ++i)
        squares += std::pow(100 * (changed[i] / base[i] - 1) - result.mean_percent, 2);
    const double error = std::sqrt(squares / (count - 1) / count) * quantile(base.size() - 1);
    result.lower_percent = result.mean_percent - error;
    result.upper_percent = result.mean_percent + error;
    return result;
}

}  // namespace stowage::benchmarks
