#include <fmt/format.h>

#include <cmath>

#include "profiler/calibrate/calibration_report.hpp"

namespace stowage::calibrate {
namespace {

/// Four digits that count, without an exponent.
std::string number(double value) {
    if (value == 0 || !std::isfinite(value)) return "0";
    const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
    return fmt::format("{:.{}f}", value, std::clamp(4 - before, 0, 5));
}

std::string figures_text(const Calibration& calibration) {
    std::string text =
        fmt::format("  {:<42} {:>10} {:>10} {:>10} {:>10}  {}\n", "figure", "value", "low", "high", "base", "unit");
    for (const Figure& figure : calibration.figures)
        text += fmt::format("  {:<42} {:>10} {:>10} {:>10} {:>10}  {}\n", figure.name, number(figure.value.middle),
                            number(figure.value.low), number(figure.value.high),
                            figure.base ? number(*figure.base) : "-", figure.unit);
    return text;
}

std::string cases_text(const std::vector<CaseError>& cases) {
    std::string text;
    for (const CaseError& one : cases)
        text += fmt::format("  {:<56} {:>10} {:>10} {:>+7.1f} %  {:>5.0f} MHz\n", one.name, number(one.measured_us),
                            number(one.predicted_us), 100 * one.error(), one.state.clock_mhz);
    return text;
}

std::string duties_text(const std::vector<DutyFigures>& duties) {
    std::string text;
    for (const DutyFigures& one : duties)
        text += fmt::format(
            "  busy {:>3.0f} %: GEMMs {} TFLOP/s, attention {:.3f} of its rate, a layer {} us, {:.0f} MHz, {:.0f} W\n",
            100 * one.duty, number(one.gemm_tflop_per_s), one.attention, number(one.layer_us), one.state.clock_mhz,
            one.state.watts);
    return text;
}

std::string headed(const std::string& heading, const std::string& body) {
    return body.empty() ? "" : "\n" + heading + "\n" + body;
}

}  // namespace

std::string calibration_text(const Calibration& calibration, const Measurements& measurements, const Base& base) {
    std::string text = fmt::format("{} measured; the rest from {}\n\n", measurements.machine.device, base.name);
    text += figures_text(calibration);
    for (const NamedFit& fit : calibration.fits)
        text += headed(fmt::format("{}: measured and fitted us", fit.name), cases_text(fit.cases));
    text += headed("A layer at full duty: measured us, and by the file", cases_text(calibration.layer));
    text += headed("By duty cycle", duties_text(calibration.duties));
    double total = 0;
    std::string phases;
    for (const Phase& phase : measurements.phases) {
        phases += fmt::format("  {:>6.1f} s  {}\n", phase.seconds, phase.name);
        total += phase.seconds;
    }
    text += headed(fmt::format("{:.1f} s in all", total), phases);
    for (const std::string& note : measurements.notes) text += "note: " + note + "\n";
    return text;
}

}  // namespace stowage::calibrate
