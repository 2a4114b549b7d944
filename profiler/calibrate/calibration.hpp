#pragma once

// From measurements to a hardware file: the figures, where each comes from, and how well it is known.
//
// What one GPU cannot tell, and what was not measured, is the base file's, and its source says so.
//
// Tested by: tests/profiler/calibrate/calibration_test.cpp, on a fake bench whose constants are known.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/calibrate/measurements.hpp"
#include "profiler/calibrate/robust_fit.hpp"
#include "profiler/calibrate/statistics.hpp"

namespace stowage::calibrate {

/// The groups of a hardware file that have sources.
enum class Section : std::uint8_t { top, device, copy, slowdown, host, graph, nvlink, network };
inline constexpr std::size_t kSections = 8;
/// In the order in which they stand: of which figures, and the text.
using Sources = std::vector<std::pair<std::string, std::string>>;

/// What is known of the machine already.
struct Base {
    std::string name;  ///< of the file, as sources call it
    types::Node node;
    std::map<Section, Sources> sources;
};

/// A fit, and how each of the cases that it was made of compares with it.
struct CaseError {
    std::string name;
    double measured_us = 0;  ///< median
    double predicted_us = 0;
    State state;
    [[nodiscard]] double error() const { return predicted_us / measured_us - 1; }
};
struct NamedFit {
    std::string name;
    Fit fit;
    std::vector<CaseError> cases;
};
/// One figure with its interval.
struct Figure {
    std::string name;
    std::string unit;
    Interval value;
    std::optional<double> base;
};
/// What the layer took at one duty cycle.
struct DutyFigures {
    double duty = 1;
    State state;
    double gemm_tflop_per_s = 0;  ///< by the model's formula, so that it compares with gemm_bf16
    double multiplying = 0;       ///< share of the time that its GEMMs and its attention run
    double attention = 0;         ///< its rate as a multiple of the file's; 0: not known
    double layer_us = 0;
};
/// The slowdown of one kernel beside copies.
struct BesideFigures {
    std::string name;
    std::array<Interval, kBesides> excess;  ///< fractions; that beside nothing is 0
    double covered = 0;                     ///< smallest share that copies covered
};

struct Calibration {
    types::Node node;
    std::map<Section, Sources> sources;
    std::vector<Figure> figures;
    std::vector<NamedFit> fits;
    std::vector<DutyFigures> duties;
    std::vector<BesideFigures> beside;
    std::vector<CaseError> layer;  ///< each kernel of the layer at full duty, beside the fitted model
};

/// `date` as 2026-11-30. Throws: std::logic_error for measurements that no bench gives.
Calibration calibrate(const Measurements& measurements, const Base& base, const std::string& date);

/// Rounded to so many digits that count.
double rounded(double value, int digits = 4);

}  // namespace stowage::calibrate
