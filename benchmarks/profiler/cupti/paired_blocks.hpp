#pragma once

// Differences of paired measurements, with how sure they are.

#include <cstddef>
#include <span>
#include <vector>

namespace stowage::benchmarks {

struct PairedDifference {
    std::size_t pairs = 0;
    double mean_percent = 0;   ///< of `changed` above `base`
    double lower_percent = 0;  ///< the 95 % interval of the mean, by Student's t
    double upper_percent = 0;
};

/// Each pair's difference in percent of its base, averaged. Both have as many entries, two or more.
PairedDifference compare(std::span<const double> base, std::span<const double> changed);

}  // namespace stowage::benchmarks
