#pragma once

// Middles and spreads that a few wild values do not move.
//
// Tested by: tests/profiler/calibrate/statistics_test.cpp.

#include <vector>

namespace stowage::calibrate {

/// Of an even number of values the mean of the two in the middle. Throws: std::logic_error if there are none.
double median(std::vector<double> values);

/// 1.4826 times the median distance from the median: the standard deviation, were the values normal. 0 for one value.
double robust_spread(const std::vector<double>& values);

struct Interval {
    double low = 0;
    double middle = 0;
    double high = 0;
    [[nodiscard]] bool contains(double value) const { return low <= value && value <= high; }
};

/// The median with an interval that holds the true one in at least 95 of 100 samples, whatever the distribution:
/// between two of the sorted values, as far from the ends as the binomial distribution of one half allows. With fewer
/// than six values there is no such pair, and the interval is that of all of them. Worked example, 30 values: P(at most
/// 9 lie below the median) = 0.0214, so the 10th and the 21st. Throws: std::logic_error if there are none.
Interval median_interval(std::vector<double> values);

}  // namespace stowage::calibrate
