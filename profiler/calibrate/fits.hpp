#pragma once

// The parts of `calibrate`, each of which fills in what it has measurements for and leaves the rest as it is. They go
// in this order: later ones use the figures of those before.

#include "profiler/calibrate/calibration.hpp"

namespace stowage::calibrate {

/// Where figures and their sources go.
class Draft {
public:
    Draft(const Base& base, Calibration& calibration) : base_(base), calibration_(calibration) {}
    [[nodiscard]] types::Node& node() const { return calibration_.node; }
    [[nodiscard]] Calibration& calibration() const { return calibration_; }
    [[nodiscard]] const Base& base() const { return base_; }

    void source(Section section, const std::string& figures, const std::string& text) const {
        calibration_.sources[section].emplace_back(figures, text);
    }
    /// That figures are the base's, in the words of the base's own source if it has one of that name.
    void from_base(Section section, const std::string& figures) const;
    void figure(const std::string& name, const std::string& unit, const Interval& value, double base_value) const {
        calibration_.figures.push_back({name, unit, value, base_value});
    }

private:
    const Base& base_;
    Calibration& calibration_;
};

void fit_copies(const Measurements& measurements, const Draft& draft);
void fit_host(const Measurements& measurements, const Draft& draft);
void fit_graphs(const Measurements& measurements, const Draft& draft);
/// kernel_overhead, node_overhead, memory_bandwidth, strided_bandwidth.
void fit_memory_kernels(const Measurements& measurements, const Draft& draft);
void fit_gemms(const Measurements& measurements, const Draft& draft);
void fit_attention(const Measurements& measurements, const Draft& draft);
/// rates_by_duty, with the rates of GEMMs and attention known.
void fit_duties(const Measurements& measurements, const Draft& draft);
void fit_beside(const Measurements& measurements, const Draft& draft);

/// Shared by the fits of kernels.
struct LayerReference {
    double clock_mhz = 0;  ///< 0: not known
    double watts = 0;
};
/// Of the layer at full duty: the clock to which rates are brought.
LayerReference layer_reference(const Measurements& measurements);
/// The layer's rounds at full duty; none: not measured.
const MixTimes* full_duty(const Measurements& measurements);
/// Median time of each kernel of a mix.
std::vector<double> medians_of(const MixTimes& mix);
State median_state(const MixTimes& mix);
/// `rate` at the reference clock, as it is at the clock of a block.
double at_clock(double rate, const State& state, const LayerReference& reference);
/// What the planner's formulas know of the device so far, with this rate.
KernelRates rates_with(const types::Device& device, double tflop_per_s);
/// Median times of the cases beside what `predicted` says of each, given the case and its state.
template <class Predict>
std::vector<CaseError> case_errors(const std::vector<const KernelTimes*>& cases, const Predict& predicted) {
    std::vector<CaseError> errors;
    for (const KernelTimes* times : cases) {
        std::vector<double> us;
        std::vector<double> clocks;
        std::vector<double> watts;
        for (const Block& block : times->blocks) {
            us.push_back(block.call_us);
            clocks.push_back(block.state.clock_mhz);
            watts.push_back(block.state.watts);
        }
        const State state{median(clocks), median(watts)};
        errors.push_back({name_of(times->kernel), median(us), predicted(times->kernel, state), state});
    }
    return errors;
}

types::Nanoseconds nanoseconds(double us);
types::FlopsPerSecond tflop(double tflop_per_s);
types::BytesPerSecond gigabytes(double gb_per_s);
double in_tflop(types::FlopsPerSecond rate);
double in_gb(types::BytesPerSecond rate);
/// "at 1520 MHz and 689 W", "clock and power not known".
std::string state_text(double clock_mhz, double watts);
/// "12 shapes in 72 blocks, root mean square 2.9 %, largest 8.1 %, 1 block left out"
std::string quality_text(const Fit& fit, std::size_t cases);

}  // namespace stowage::calibrate
