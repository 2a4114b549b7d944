#include "profiler/calibrate/statistics.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <stdexcept>

namespace stowage::calibrate {
namespace {

TEST(Statistics, MedianOfOddAndEvenNumbersOfValues) {
    EXPECT_EQ(median({3, 1, 2}), 2);
    EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
    EXPECT_EQ(median({7}), 7);
    EXPECT_THROW(median({}), std::logic_error);
}

// Distances from 3 are 2, 1, 0, 1, 997: their median is 1.
TEST(Statistics, SpreadIgnoresAWildValue) {
    EXPECT_DOUBLE_EQ(robust_spread({1, 2, 3, 4, 1000}), 1.4826);
    EXPECT_EQ(robust_spread({5}), 0);
}

// P(at most 9 of 30 below the median) is 0.0214 and of at most 10 0.0494: the 10th and the 21st. Of six, P(none below)
// is 1/64 = 0.0156, and of at most one 7/64: the ends.
TEST(Statistics, IntervalLiesBetweenTheValuesThatTheBinomialDistributionNames) {
    std::vector<double> values(30);
    std::iota(values.rbegin(), values.rend(), 1.0);
    const Interval thirty = median_interval(values);
    EXPECT_EQ(thirty.low, 10);
    EXPECT_EQ(thirty.middle, 15.5);
    EXPECT_EQ(thirty.high, 21);
    const Interval six = median_interval({6, 5, 4, 3, 2, 1});
    EXPECT_EQ(six.low, 1);
    EXPECT_EQ(six.high, 6);
    const Interval three = median_interval({2, 9, 4});
    EXPECT_EQ(three.low, 2);
    EXPECT_EQ(three.high, 9);
}

// 95 of 100 at least; 1000 samples of a skewed distribution scatter by 7 around 957 (30 values: 0.9572).
TEST(Statistics, IntervalHoldsTheMedianAsOftenAsItSays) {
    std::mt19937_64 numbers(5);
    int held = 0;
    for (int sample = 0; sample < 1000; ++sample) {
        std::vector<double> values;
        for (int i = 0; i < 30; ++i) {
            const double part = (static_cast<double>(numbers() >> 11) + 0.5) / 9007199254740992.0;
            values.push_back(-std::log(part));  // exponential: its median is log 2
        }
        if (median_interval(values).contains(std::log(2.0))) ++held;
    }
    EXPECT_GT(held, 930);
    EXPECT_LT(held, 980);
}

}  // namespace
}  // namespace stowage::calibrate
