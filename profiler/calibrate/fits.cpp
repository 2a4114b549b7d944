#include "profiler/calibrate/fits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stowage::calibrate {

void Draft::from_base(Section section, const std::string& figures) const {
    std::string text = "from " + base_.name + ", not measured here";
    const auto known = base_.sources.find(section);
    if (known != base_.sources.end()) {
        const auto entry = std::ranges::find(known->second, figures, &std::pair<std::string, std::string>::first);
        if (entry != known->second.end()) text = "from " + base_.name + ": " + entry->second;
    }
    source(section, figures, text);
}

const MixTimes* full_duty(const Measurements& measurements) {
    for (const MixTimes& mix : measurements.mixes)
        if (mix.duty >= 1 && !mix.rounds.empty()) return &mix;
    return nullptr;
}

State median_state(const MixTimes& mix) {
    std::vector<double> clocks;
    std::vector<double> watts;
    for (const MixRound& round : mix.rounds) {
        clocks.push_back(round.state.clock_mhz);
        watts.push_back(round.state.watts);
    }
    return {median(clocks), median(watts)};
}

LayerReference layer_reference(const Measurements& measurements) {
    const MixTimes* const mix = full_duty(measurements);
    if (mix == nullptr) return {};
    const State state = median_state(*mix);
    return {state.clock_mhz, state.watts};
}

std::vector<double> medians_of(const MixTimes& mix) {
    std::vector<double> result;
    for (std::size_t kernel = 0; kernel < mix.kernels.size(); ++kernel) {
        std::vector<double> times;
        for (const MixRound& round : mix.rounds) times.push_back(round.call_us.at(kernel));
        result.push_back(median(times));
    }
    return result;
}

double at_clock(double rate, const State& state, const LayerReference& reference) {
    const bool known = state.clock_mhz > 0 && reference.clock_mhz > 0;
    return known ? rate * state.clock_mhz / reference.clock_mhz : rate;
}

KernelRates rates_with(const types::Device& device, double tflop_per_s) {
    return {.tflop_per_s = tflop_per_s,
            .gb_per_s = in_gb(device.memory_bandwidth),
            .overhead_us = types::in_microseconds(device.kernel_overhead),
            .ramp_us = types::in_microseconds(device.gemm_ramp)};
}

double rounded(double value, int digits) {
    if (value == 0 || !std::isfinite(value)) return value;
    const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - (digits - 1));
    return unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value / unit) * unit;
}

types::Nanoseconds nanoseconds(double us) {
    return types::Nanoseconds{static_cast<std::int64_t>(std::llround(rounded(us) * 1e3))};
}
types::FlopsPerSecond tflop(double tflop_per_s) { return {rounded(tflop_per_s) * 1e12}; }
types::BytesPerSecond gigabytes(double gb_per_s) { return {rounded(gb_per_s) * 1e9}; }
double in_tflop(types::FlopsPerSecond rate) { return rate.rate / 1e12; }
double in_gb(types::BytesPerSecond rate) { return rate.rate / 1e9; }

std::string state_text(double clock_mhz, double watts) {
    if (clock_mhz <= 0 || watts <= 0) return "clock and power not known";
    return fmt::format("at {:.0f} MHz and {:.0f} W", clock_mhz, watts);
}

std::string quality_text(const Fit& fit, std::size_t cases) {
    return fmt::format("{} cases in {} blocks, root mean square {:.1f} %, largest {:.1f} %, {} left out", cases,
                       fit.residuals.size(), 100 * fit.root_mean_square, 100 * fit.largest, fit.left_out);
}

}  // namespace stowage::calibrate
