#include "profiler/calibrate/robust_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "profiler/calibrate/statistics.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::calibrate {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kLeastDistance = 1e-3;  // in spreads: nearer rows weigh no more
constexpr double kTukey = 4.685;
constexpr double kExact = 1e-12;     // residuals below this are those of a perfect fit
constexpr double kTolerance = 1e-9;  // of a parameter, relative to its size
constexpr int kMostSteps = 100;
constexpr int kMostRounds = 50;
constexpr double kNormalQuantile = 1.96;

double inverse_weight(double distance) { return 1 / std::max(distance, kLeastDistance); }
double tukey_weight(double distance) {
    if (distance >= kTukey) return 0;
    const double part = distance / kTukey;
    return (1 - part * part) * (1 - part * part);
}

/// The rows with the weights of one round.
class Solver {
public:
    explicit Solver(const FitProblem& problem)
        : problem_(problem),
          count_(static_cast<Index>(problem.parameters.size())),
          rows_(static_cast<Index>(problem.rows)),
          at_(count_),
          scale_(count_),
          weights_(VectorXd::Ones(rows_)) {
        for (Index i = 0; i < count_; ++i) {
            const Parameter& parameter = problem.parameters[static_cast<std::size_t>(i)];
            at_[i] = parameter.start;
            scale_[i] = std::max(std::abs(parameter.start), 1e-6 * (parameter.highest - parameter.lowest));
        }
    }

    [[nodiscard]] VectorXd residuals(const VectorXd& at) const {
        const std::span<const double> parameters(at.data(), static_cast<std::size_t>(count_));
        VectorXd result(rows_);
        for (Index row = 0; row < rows_; ++row)
            result[row] = problem_.residual(parameters, static_cast<std::size_t>(row));
        return result;
    }
    [[nodiscard]] const VectorXd& at() const { return at_; }
    [[nodiscard]] const VectorXd& weights() const { return weights_; }
    [[nodiscard]] bool is_at_bound(Index i) const { return at_[i] <= lowest(i) || at_[i] >= highest(i); }

    void weigh(double (*weight)(double)) {
        const VectorXd now = residuals(at_);
        const std::vector<double> distances(now.data(), now.data() + rows_);
        std::vector<double> sizes;
        for (const double distance : distances) sizes.push_back(std::abs(distance));
        const double spread = std::max(1.4826 * median(sizes), kExact);
        for (Index row = 0; row < rows_; ++row) weights_[row] = weight(std::abs(now[row]) / spread);
    }

    /// To the least weighted squares within the bounds. Returns how far the parameters moved, relative to their size.
    double descend() {
        const VectorXd before = at_;
        double damping = 1e-3;
        double cost = cost_at(at_);
        for (int step = 0; step < kMostSteps; ++step) {
            const double moved = try_step(damping, cost);
            if (moved >= 0 && moved < kTolerance) break;
            if (damping > 1e12) break;
        }
        return ((at_ - before).array() / size_of(at_).array()).abs().maxCoeff();
    }

    /// Half widths of the parameters' intervals. Those on a bound count as given.
    [[nodiscard]] VectorXd errors() const {
        VectorXd result = VectorXd::Zero(count_);
        const std::vector<Index> free = inside();
        if (free.empty()) return result;
        const MatrixXd all = jacobian(at_);
        MatrixXd columns(rows_, static_cast<Index>(free.size()));
        for (std::size_t i = 0; i < free.size(); ++i) columns.col(static_cast<Index>(i)) = all.col(free[i]);
        const MatrixXd normal = columns.transpose() * weights_.asDiagonal() * columns;
        const MatrixXd inverse = normal.completeOrthogonalDecomposition().pseudoInverse();
        const double freedom = std::max(1.0, weights_.sum() - static_cast<double>(free.size()));
        const double variance = cost_at(at_) / freedom;
        for (std::size_t i = 0; i < free.size(); ++i) {
            const auto place = static_cast<Index>(i);
            result[free[i]] = kNormalQuantile * std::sqrt(std::max(0.0, variance * inverse(place, place)));
        }
        return result;
    }

private:
    [[nodiscard]] double lowest(Index i) const { return problem_.parameters[static_cast<std::size_t>(i)].lowest; }
    [[nodiscard]] double highest(Index i) const { return problem_.parameters[static_cast<std::size_t>(i)].highest; }
    [[nodiscard]] VectorXd size_of(const VectorXd& at) const { return at.cwiseAbs().cwiseMax(1e-9 * scale_); }
    [[nodiscard]] double cost_at(const VectorXd& at) const { return weights_.dot(residuals(at).cwiseAbs2()); }
    [[nodiscard]] std::vector<Index> inside() const {
        std::vector<Index> free;
        for (Index i = 0; i < count_; ++i)
            if (!is_at_bound(i)) free.push_back(i);
        return free;
    }

    /// By differences, to the side that the bounds leave.
    [[nodiscard]] MatrixXd jacobian(const VectorXd& at) const {
        MatrixXd result(rows_, count_);
        const VectorXd here = residuals(at);
        for (Index i = 0; i < count_; ++i) {
            VectorXd there = at;
            double step = 1e-6 * std::max(std::abs(at[i]), 1e-3 * scale_[i]);
            if (at[i] + step > highest(i)) step = -step;
            there[i] += step;
            result.col(i) = (residuals(there) - here) / step;
        }
        return result;
    }

    /// Moves if that is better, and adapts the damping. Returns the relative length of the move, -1 if there was none.
    double try_step(double& damping, double& cost) {
        const MatrixXd slope = jacobian(at_);
        const VectorXd gradient = slope.transpose() * weights_.cwiseProduct(residuals(at_));
        MatrixXd normal = slope.transpose() * weights_.asDiagonal() * slope;
        VectorXd downhill = -gradient;
        for (Index i = 0; i < count_; ++i) {
            const bool outward = (at_[i] <= lowest(i) && downhill[i] < 0) || (at_[i] >= highest(i) && downhill[i] > 0);
            if (!outward) continue;
            normal.row(i).setZero();
            normal.col(i).setZero();
            normal(i, i) = 1;
            downhill[i] = 0;
        }
        // Marquardt's damping, of each parameter by its own curvature; a flat one is held where it is.
        for (Index i = 0; i < count_; ++i) normal(i, i) += damping * normal(i, i) + 1e-300;
        VectorXd next = at_ + normal.ldlt().solve(downhill);
        for (Index i = 0; i < count_; ++i) next[i] = std::clamp(next[i], lowest(i), highest(i));
        const double there = next.allFinite() ? cost_at(next) : cost + 1;
        if (!(there <= cost)) {
            damping *= 10;
            return -1;
        }
        const double moved = ((next - at_).array() / size_of(at_).array()).abs().maxCoeff();
        at_ = next;
        cost = there;
        damping = std::max(damping / 10, 1e-12);
        return moved;
    }

    const FitProblem& problem_;
    Index count_;
    Index rows_;
    VectorXd at_;
    VectorXd scale_;
    VectorXd weights_;
};

/// Rounds of weighing and solving until the parameters stay, if they do.
bool settle(Solver& solver, double (*weight)(double)) {
    for (int round = 0; round < kMostRounds; ++round) {
        solver.weigh(weight);
        if (solver.descend() < 1e3 * kTolerance) return true;
    }
    return false;
}

void check_problem(const FitProblem& problem) {
    STOWAGE_CHECK(!problem.parameters.empty() && problem.rows >= problem.parameters.size(),
                  "a fit needs at least a row for each parameter");
    for (const Parameter& parameter : problem.parameters)
        STOWAGE_CHECK(parameter.lowest <= parameter.start && parameter.start <= parameter.highest,
                      "a fit starts within its bounds");
}

void describe_residuals(const Solver& solver, Fit& fit) {
    const VectorXd residuals = solver.residuals(solver.at());
    double squares = 0;
    std::size_t counted = 0;
    for (Index row = 0; row < residuals.size(); ++row) {
        fit.residuals.push_back(residuals[row]);
        if (solver.weights()[row] <= 0) continue;
        ++counted;
        squares += residuals[row] * residuals[row];
        fit.largest = std::max(fit.largest, std::abs(residuals[row]));
    }
    fit.left_out = fit.residuals.size() - counted;
    if (counted > 0) fit.root_mean_square = std::sqrt(squares / static_cast<double>(counted));
}

}  // namespace

Fit fit_robustly(const FitProblem& problem) {
    check_problem(problem);
    Solver solver(problem);
    solver.descend();
    Fit fit;
    settle(solver, inverse_weight);
    fit.converged = settle(solver, tukey_weight);
    const VectorXd errors = solver.errors();
    for (Index i = 0; i < solver.at().size(); ++i) {
        const Parameter& parameter = problem.parameters[static_cast<std::size_t>(i)];
        fit.parameters.push_back({parameter.name, solver.at()[i], errors[i], solver.is_at_bound(i)});
    }
    describe_residuals(solver, fit);
    return fit;
}

}  // namespace stowage::calibrate
