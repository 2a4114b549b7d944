#include "profiler/calibrate/robust_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

namespace stowage::calibrate {
namespace {

struct Line {
    std::vector<double> x;
    std::vector<double> y;
    [[nodiscard]] FitProblem problem(double lowest = -1e6, double highest = 1e6) const {
        return {{{"offset", std::clamp(1.0, lowest, highest), lowest, highest}, {"slope", 1, -1e6, 1e6}},
                x.size(),
                [this](std::span<const double> p, std::size_t row) { return p[0] + p[1] * x[row] - y[row]; }};
    }
};

/// Of normal numbers, by Box and Muller's method: the same on every machine.
class Normal {
public:
    explicit Normal(std::uint64_t seed) : numbers_(seed) {}
    double next() { return std::sqrt(-2 * std::log(part())) * std::cos(6.283185307179586 * part()); }

private:
    double part() { return (static_cast<double>(numbers_() >> 11) + 0.5) / 9007199254740992.0; }
    std::mt19937_64 numbers_;
};

Line line_of(int rows, double offset, double slope) {
    Line line;
    for (int i = 0; i < rows; ++i) {
        line.x.push_back(i);
        line.y.push_back(offset + slope * i);
    }
    return line;
}

TEST(RobustFit, FindsALineExactly) {
    const Fit fit = fit_robustly(line_of(10, 3, 0.5).problem());
    EXPECT_NEAR(fit.value(0), 3, 1e-6);
    EXPECT_NEAR(fit.value(1), 0.5, 1e-7);
    EXPECT_LT(fit.root_mean_square, 1e-6);
    EXPECT_TRUE(fit.converged);
    EXPECT_EQ(fit.parameters[0].name, "offset");
    EXPECT_FALSE(fit.parameters[0].at_bound);
}

// Plain least squares over these rows would have an offset of 3 + 12 * 50 / 40 and more.
TEST(RobustFit, LeavesOutRowsThatAreWrong) {
    Line line = line_of(40, 3, 0.5);
    Normal normal(1);
    for (double& y : line.y) y += 0.01 * normal.next();
    for (std::size_t i = 0; i < 12; ++i) line.y[3 * i] += 50;
    const Fit fit = fit_robustly(line.problem());
    EXPECT_NEAR(fit.value(0), 3, 0.02);
    EXPECT_NEAR(fit.value(1), 0.5, 0.001);
    EXPECT_EQ(fit.left_out, 12U);
    EXPECT_NEAR(fit.residuals[0], -50, 0.1);
    EXPECT_LT(fit.largest, 0.05);
}

// The best offset is 3. Held to 2 at most, the slope alone is left: the least squares of (3 + x / 2 - 2 - s x) over
// x = 0..9 has s = 1/2 + sum x / sum x^2 = 1/2 + 45 / 285.
TEST(RobustFit, HoldsAParameterOnItsBoundAndMovesTheOthers) {
    const Fit fit = fit_robustly(line_of(10, 3, 0.5).problem(-1, 2));
    EXPECT_EQ(fit.value(0), 2);
    EXPECT_TRUE(fit.parameters[0].at_bound);
    EXPECT_EQ(fit.parameters[0].error, 0);
    EXPECT_NEAR(fit.value(1), 0.5 + 45.0 / 285, 0.05);  // weights of far rows are less than 1
}

// A model with a corner: max(work / rate, bytes / 4) + fixed. A third of the rows says nothing of the rate.
TEST(RobustFit, FitsAModelWithACorner) {
    const double rate = 7;
    const double fixed = 2.5;
    std::vector<std::pair<double, double>> rows;
    for (int i = 1; i <= 30; ++i) rows.emplace_back(i * 40.0, i % 3 == 0 ? 4000.0 : 10.0);
    const auto model = [](double r, double f, const std::pair<double, double>& row) {
        return std::max(row.first / r, row.second / 4) + f;
    };
    FitProblem problem{
        {{"rate", 1, 0.1, 100}, {"fixed", 0, 0, 50}}, rows.size(), [&](std::span<const double> p, std::size_t row) {
            return model(p[0], p[1], rows[row]) / model(rate, fixed, rows[row]) - 1;
        }};
    const Fit fit = fit_robustly(problem);
    EXPECT_NEAR(fit.value(0), rate, 1e-4);
    EXPECT_NEAR(fit.value(1), fixed, 1e-4);
}

// Tukey's weights keep 95 % of the efficiency of plain least squares; the interval of 1.96 standard errors holds the
// truth in some 93 to 95 of 100 samples of 40 normal rows.
TEST(RobustFit, SaysHowWellTheRowsFixAParameter) {
    int held = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        Line line = line_of(40, 3, 0.5);
        Normal normal(seed);
        for (double& y : line.y) y += 0.2 * normal.next();
        const FittedParameter slope = fit_robustly(line.problem()).parameters[1];
        if (std::abs(slope.value - 0.5) <= slope.error) ++held;
    }
    EXPECT_GE(held, 176);
    EXPECT_LE(held, 199);
}

// Nothing depends on the second parameter: it stays where it began, and the first is found.
TEST(RobustFit, LeavesAParameterAloneThatNothingDependsOn) {
    FitProblem problem{{{"level", 1, 0, 100}, {"nothing", 7, 0, 100}},
                       5,
                       [](std::span<const double> p, std::size_t /*row*/) { return p[0] / 40 - 1; }};
    const Fit fit = fit_robustly(problem);
    EXPECT_NEAR(fit.value(0), 40, 1e-4);
    EXPECT_NEAR(fit.value(1), 7, 1e-9);
}

TEST(RobustFit, RefusesTooFewRowsAndAStartOutsideOfTheBounds) {
    EXPECT_THROW(fit_robustly(line_of(1, 0, 0).problem()), std::logic_error);
    FitProblem outside{{{"level", 5, 0, 1}}, 3, [](std::span<const double>, std::size_t) { return 0.0; }};
    EXPECT_THROW(fit_robustly(outside), std::logic_error);
}

TEST(RobustFit, OfTheSameRowsGivesTheSameBits) {
    Line line = line_of(40, 3, 0.5);
    Normal normal(9);
    for (double& y : line.y) y += 0.2 * normal.next();
    EXPECT_EQ(fit_robustly(line.problem()).value(1), fit_robustly(line.problem()).value(1));
}

}  // namespace
}  // namespace stowage::calibrate
