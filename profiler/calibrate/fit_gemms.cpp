#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/calibrate/kernel_rows.hpp"

namespace stowage::calibrate {
namespace {

bool is_gemm_case(const KernelCase& kernel) { return is_bf16_gemm(kernel.kind); }

double layer_gemm_us(const types::Device& device, const KernelCase& kernel, double rate) {
    return gemm_us(work_of(kernel), rates_with(device, rate));
}

Fit fit_shapes(const std::vector<Row>& rows, const types::Device& device, const LayerReference& reference) {
    const KernelRates known = rates_with(device, 1);
    FitProblem problem{
        {{"rate", 500, 1, 50000}, {"ramp_us", 2, 0, 50}}, rows.size(), [&](std::span<const double> p, std::size_t row) {
            KernelRates rates = known;
            rates.tflop_per_s = at_clock(p[0], rows[row].block.state, reference);
            rates.ramp_us = p[1];
            return gemm_us(rows[row].work, rates) / rows[row].block.call_us - 1;
        }};
    return fit_robustly(problem);
}

/// Rate of FP8 at the layer's clock; its ramp is that of bf16.
Fit fit_fp8(const std::vector<Row>& rows, const types::Device& device, const LayerReference& reference) {
    const KernelRates known = rates_with(device, 1);
    FitProblem problem{{{"rate", 1000, 1, 100000}}, rows.size(), [&](std::span<const double> p, std::size_t row) {
                           KernelRates rates = known;
                           rates.tflop_per_s = at_clock(p[0], rows[row].block.state, reference);
                           return gemm_us(rows[row].work, rates) / rows[row].block.call_us - 1;
                       }};
    return fit_robustly(problem);
}

/// The rate of the layer at full duty divided by that of the shapes at the same clock; 1 where there is no layer.
double fit_bf16(const Measurements& measurements, const Draft& draft, const std::vector<const KernelTimes*>& cases) {
    types::Device& device = draft.node().device;
    const LayerReference reference = layer_reference(measurements);
    const Fit fit = fit_shapes(rows_of_cases(cases), device, reference);
    const double base_rate = in_tflop(device.gemm_bf16);
    draft.figure("gemm_ramp", "us", interval_of(fit.parameters[1]), types::in_microseconds(device.gemm_ramp));
    device.gemm_ramp = nanoseconds(fit.value(1));
    const auto of_layer =
        rate_of_layer(full_duty(measurements), fit.value(0), is_gemm_case,
                      [&](const KernelCase& kernel, double one) { return layer_gemm_us(device, kernel, one); });
    const double factor = of_layer.value_or(fit.value(0)) / fit.value(0);
    draft.figure("gemm_bf16", "TFLOP/s", interval_of(fit.parameters[0], factor), base_rate);
    device.gemm_bf16 = tflop(factor * fit.value(0));
    draft.calibration().fits.push_back(
        {"gemm_bf16", fit, case_errors(cases, [&](const KernelCase& kernel, const State& state) {
             return gemm_us(work_of(kernel), rates_with(device, at_clock(fit.value(0), state, reference)));
         })});
    const std::string where = state_text(reference.clock_mhz, reference.watts);
    draft.source(Section::device, "gemm_bf16",
                 of_layer
                     ? fmt::format("measured; the GEMMs of a layer, forward and backward, busy all the time, {}; by "
                                   "shapes, brought to that clock, {:.0f}",
                                   where, fit.value(0))
                     : fmt::format("measured by shapes, {}", where));
    draft.source(Section::device, "gemm_ramp",
                 fmt::format("measured; with the rate by shapes, {}; +- {:.2f}", quality_text(fit, cases.size()),
                             fit.parameters[1].error));
    return factor;
}

void fit_fp8_rate(const Measurements& measurements, const Draft& draft, double factor) {
    types::Device& device = draft.node().device;
    const auto cases =
        cases_of(measurements, [](const KernelCase& kernel) { return kernel.kind == KernelKind::fp8_forward; });
    if (cases.empty()) {
        draft.from_base(Section::device, "gemm_fp8");
        return draft.from_base(Section::device, "gemm_fp8_blockwise");
    }
    const LayerReference reference = layer_reference(measurements);
    const Fit fit = fit_fp8(rows_of_cases(cases), device, reference);
    const double before = in_tflop(device.gemm_fp8);
    draft.figure("gemm_fp8", "TFLOP/s", interval_of(fit.parameters[0], factor), before);
    device.gemm_fp8 = tflop(factor * fit.value(0));
    draft.calibration().fits.push_back(
        {"gemm_fp8", fit, case_errors(cases, [&](const KernelCase& kernel, const State& state) {
             return gemm_us(work_of(kernel), rates_with(device, at_clock(fit.value(0), state, reference)));
         })});
    draft.source(Section::device, "gemm_fp8",
                 fmt::format("measured; tensorwise scales, fast sums, forward; {}; brought to the layer's clock",
                             quality_text(fit, cases.size())));
    if (before <= 0 || device.gemm_fp8_blockwise.rate <= 0)
        return draft.from_base(Section::device, "gemm_fp8_blockwise");
    device.gemm_fp8_blockwise = tflop(in_tflop(device.gemm_fp8_blockwise) / before * in_tflop(device.gemm_fp8));
    draft.source(Section::device, "gemm_fp8_blockwise",
                 "gemm_fp8 as measured, times the ratio of the two in " + draft.base().name);
}

}  // namespace

void fit_gemms(const Measurements& measurements, const Draft& draft) {
    const auto cases = cases_of(measurements, is_gemm_case);
    if (cases.size() < 3) {
        for (const char* name : {"gemm_bf16", "gemm_ramp", "gemm_fp8", "gemm_fp8_blockwise"})
            draft.from_base(Section::device, name);
        return;
    }
    const double factor = fit_bf16(measurements, draft, cases);
    fit_fp8_rate(measurements, draft, factor);
}

}  // namespace stowage::calibrate
