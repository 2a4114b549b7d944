#pragma once

// Parameters of a model of measured times, when some of the times are wrong.
//
// Least squares, each row weighted anew by how far it lies from the fit (iteratively reweighted): first by the inverse
// of its distance, which leads to the least sum of distances and is not drawn along by far rows, then by Tukey's
// weights, which leave out what lies beyond 4.685 spreads. The spread is the median distance of the residuals. Up to a
// third of the rows may be wrong, all to the same side. Each weighted problem is solved by Levenberg and Marquardt's
// method; a parameter that would leave its bounds stays on the bound while the others move.
//
// Confidence: 1.96 times the root of the diagonal of s^2 (J' W J)^-1, s the weighted spread of the residuals; it says
// how well the rows fix the parameter if the model is right, not how right the model is. A parameter on a bound has
// the interval of one that was given.
//
// Source: Holland and Welsch 1977 (weights and constants); Schlossmacher 1973 (the sum of distances); Marquardt 1963.
// Tested by: tests/profiler/calibrate/robust_fit_test.cpp, on rows with known parameters, noise and outliers.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace stowage::calibrate {

struct Parameter {
    std::string name;
    double start = 0;
    double lowest = 0;
    double highest = 0;
};

/// `residual(parameters, row)` is 0 where the model meets the row; usually predicted / measured - 1.
struct FitProblem {
    std::vector<Parameter> parameters;
    std::size_t rows = 0;
    std::function<double(std::span<const double>, std::size_t)> residual;
};

struct FittedParameter {
    std::string name;
    double value = 0;
    double error = 0;  ///< half of the 95 % interval's width
    bool at_bound = false;
};

struct Fit {
    std::vector<FittedParameter> parameters;
    std::vector<double> residuals;  ///< of every row
    std::size_t left_out = 0;       ///< rows without any weight
    double root_mean_square = 0;    ///< of the residuals of the rows that have weight
    double largest = 0;             ///< of those, without sign
    bool converged = false;
    [[nodiscard]] double value(std::size_t parameter) const { return parameters[parameter].value; }
};

/// Deterministic. Cost: some tens of rounds of rows x parameters residuals.
/// Throws: std::logic_error if there are fewer rows than parameters, or a start outside of its bounds.
Fit fit_robustly(const FitProblem& problem);

}  // namespace stowage::calibrate
