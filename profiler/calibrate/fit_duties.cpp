#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "profiler/calibrate/kernel_rows.hpp"

namespace stowage::calibrate {
namespace {

double gemm_case_us(const types::Device& device, const KernelCase& kernel, double rate) {
    return gemm_us(work_of(kernel), rates_with(device, rate));
}

double attention_case_us(const types::Device& device, const KernelCase& kernel, double gain) {
    const bool forward = kernel.kind == KernelKind::attention_forward;
    const types::FlopsPerSecond rate = forward ? device.attention_forward_bf16 : device.attention_backward_bf16;
    KernelRates rates = rates_with(device, gain * in_tflop(rate));
    rates.loss = forward ? device.attention_forward : device.attention_backward;
    return attention_us(work_of(kernel), rates);
}

bool multiplies(const KernelCase& kernel) { return is_bf16_gemm(kernel.kind) || is_attention(kernel.kind); }

/// What the layer's GEMMs and its attention took, in the terms of the model.
DutyFigures figures_of(const MixTimes& mix, const types::Device& device) {
    DutyFigures figures{mix.duty, median_state(mix)};
    const std::vector<double> times = medians_of(mix);
    double multiplying = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
        figures.layer_us += times[i];
        if (multiplies(mix.kernels[i])) multiplying += times[i];
    }
    figures.multiplying = mix.duty * multiplying / figures.layer_us;
    figures.gemm_tflop_per_s =
        rate_of_layer(
            &mix, in_tflop(device.gemm_bf16), [](const KernelCase& kernel) { return is_bf16_gemm(kernel.kind); },
            [&](const KernelCase& kernel, double rate) { return gemm_case_us(device, kernel, rate); })
            .value_or(0);
    figures.attention =
        rate_of_layer(
            &mix, 1, [](const KernelCase& kernel) { return is_attention(kernel.kind); },
            [&](const KernelCase& kernel, double gain) { return attention_case_us(device, kernel, gain); })
            .value_or(0);
    return figures;
}

/// Between that of the next higher duty and what would let a chip that multiplies for less of the time do as much in
/// all: what a hardware file may say, and what a figure is off by its noise where it says something else.
double within(double gain, double above, double duty_above, double duty) {
    return rounded(std::clamp(gain, above, above * duty_above / duty));
}

std::string text_of(const DutyFigures& figures) {
    return fmt::format("{:.1f} when busy {:.0f} % of the time, {}", figures.gemm_tflop_per_s, 100 * figures.duty,
                       state_text(figures.state.clock_mhz, figures.state.watts));
}

/// Given from the highest duty down. Without attention's own figures it gains what GEMMs do.
std::vector<types::DutyRate> gains_of(const std::vector<DutyFigures>& falling) {
    const DutyFigures& full = falling.front();
    const bool attends = std::ranges::all_of(falling, [](const DutyFigures& one) { return one.attention > 0; });
    std::vector<types::DutyRate> rates{{rounded(full.multiplying), 1, 1}};
    for (std::size_t i = 1; i < falling.size(); ++i) {
        const DutyFigures& one = falling[i];
        const types::DutyRate above = rates.back();
        const double duty = rounded(one.multiplying);
        const double gemm = within(one.gemm_tflop_per_s / full.gemm_tflop_per_s, above.gemm, above.duty, duty);
        const double attention = within(one.attention / full.attention, above.attention, above.duty, duty);
        rates.push_back({duty, gemm, attends ? attention : gemm});
    }
    std::ranges::reverse(rates);
    return rates;
}

}  // namespace

void fit_duties(const Measurements& measurements, const Draft& draft) {
    std::vector<DutyFigures>& duties = draft.calibration().duties;
    for (const MixTimes& mix : measurements.mixes)
        if (!mix.rounds.empty()) duties.push_back(figures_of(mix, draft.node().device));
    std::vector<DutyFigures> falling = duties;
    std::ranges::sort(falling, std::ranges::greater{}, &DutyFigures::duty);
    const bool known = std::ranges::all_of(falling, [](const DutyFigures& one) { return one.gemm_tflop_per_s > 0; });
    if (!known || falling.size() < 2 || falling.front().duty < 1)
        return draft.from_base(Section::device, "rates_by_duty");
    draft.node().device.rates_by_duty = gains_of(falling);
    std::string text =
        "measured; the GEMMs of a layer, forward and backward, TFLOP/s; its GEMMs and attention are what counts as "
        "duty";
    for (const DutyFigures& one : falling) text += "; " + text_of(one);
    draft.source(Section::device, "rates_by_duty", text);
}

}  // namespace stowage::calibrate
