#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/calibrate/kernel_rows.hpp"

namespace stowage::calibrate {
namespace {

/// What differs between the two directions.
struct Direction {
    KernelKind kind;
    const char* name;
    types::FlopsPerSecond types::Device::*rate;
    types::AttentionLoss types::Device::*loss;
    double types::HeadSizeRate::*share;
};

const Direction kForward{KernelKind::attention_forward, "attention_forward", &types::Device::attention_forward_bf16,
                         &types::Device::attention_forward, &types::HeadSizeRate::forward};
const Direction kBackward{KernelKind::attention_backward, "attention_backward", &types::Device::attention_backward_bf16,
                          &types::Device::attention_backward, &types::HeadSizeRate::backward};
constexpr std::int64_t kHeadSize = 128;

bool is_reference(const KernelCase& kernel) { return kernel.head_size == kHeadSize && kernel.value_size == kHeadSize; }

Fit fit_attention_shapes(const std::vector<Row>& rows, const types::Device& device, const LayerReference& reference) {
    const KernelRates known = rates_with(device, 1);
    FitProblem problem{{{"rate", 400, 1, 50000}, {"start_keys", 200, 0, 5000}, {"tail_blocks", 100, 0, 5000}},
                       rows.size(),
                       [&](std::span<const double> p, std::size_t row) {
                           KernelRates rates = known;
                           rates.tflop_per_s = at_clock(p[0], rows[row].block.state, reference);
                           rates.loss = {p[1], p[2]};
                           return attention_us(rows[row].work, rates) / rows[row].block.call_us - 1;
                       }};
    return fit_robustly(problem);
}

double attention_case_us(const types::Device& device, const Direction& direction, const KernelCase& kernel,
                         double rate) {
    KernelRates rates = rates_with(device, rate);
    rates.loss = device.*direction.loss;
    return attention_us(work_of(kernel), rates);
}

/// How much faster than heads of 128 this case is, by its blocks: of the time that multiplies.
Interval head_size_share(const KernelTimes& times, const types::Device& device, const Direction& direction, double rate,
                         const LayerReference& reference) {
    const double fixed = work_of(times.kernel).between_bytes / (in_gb(device.memory_bandwidth) * 1e3) +
                         types::in_microseconds(device.kernel_overhead);
    std::vector<double> shares;
    for (const Block& block : times.blocks) {
        const double at_full =
            attention_case_us(device, direction, times.kernel, at_clock(rate, block.state, reference));
        shares.push_back(std::clamp((at_full - fixed) / std::max(block.call_us - fixed, 1e-3), 0.01, 10.0));
    }
    return median_interval(shares);
}

types::HeadSizeRate& entry_for(std::vector<types::HeadSizeRate>& rates, double head_size) {
    const auto above = std::ranges::lower_bound(rates, head_size, {}, &types::HeadSizeRate::head_size);
    if (above != rates.end() && above->head_size == head_size) return *above;
    return *rates.insert(above, {head_size, 1, 1});
}

/// Returns the rate by shapes at the layer's clock.
double fit_attention_rate(const Measurements& measurements, const Draft& draft, const Direction& direction,
                          const std::vector<const KernelTimes*>& cases) {
    types::Device& device = draft.node().device;
    const LayerReference reference = layer_reference(measurements);
    const Fit fit = fit_attention_shapes(rows_of_cases(cases), device, reference);
    device.*direction.loss = {rounded(fit.value(1), 3), rounded(fit.value(2), 3)};
    const auto of_layer = rate_of_layer(
        full_duty(measurements), fit.value(0), [&](const KernelCase& kernel) { return kernel.kind == direction.kind; },
        [&](const KernelCase& kernel, double one) { return attention_case_us(device, direction, kernel, one); });
    const double factor = of_layer.value_or(fit.value(0)) / fit.value(0);
    draft.figure(std::string(direction.name) + "_bf16", "TFLOP/s", interval_of(fit.parameters[0], factor),
                 in_tflop(device.*direction.rate));
    device.*direction.rate = tflop(factor * fit.value(0));
    draft.calibration().fits.push_back(
        {direction.name, fit, case_errors(cases, [&](const KernelCase& kernel, const State& state) {
             return attention_case_us(device, direction, kernel, at_clock(fit.value(0), state, reference));
         })});
    draft.source(Section::device, direction.name,
                 fmt::format("measured; cuDNN {} through stowage's own layers, causal{}; {}; {}, by shapes {:.0f}",
                             measurements.machine.cudnn,
                             direction.kind == KernelKind::attention_backward ? ", deterministic" : "",
                             quality_text(fit, cases.size()), of_layer ? "rate of the layer" : "rate of the shapes",
                             fit.value(0)));
    return fit.value(0);
}

void fit_direction(const Measurements& measurements, const Draft& draft, const Direction& direction) {
    const auto all = cases_of(measurements, [&](const KernelCase& kernel) { return kernel.kind == direction.kind; });
    std::vector<const KernelTimes*> fitted;
    for (const KernelTimes* times : all)
        if (is_reference(times->kernel)) fitted.push_back(times);
    if (fitted.size() < 3) return draft.from_base(Section::device, direction.name);
    types::Device& device = draft.node().device;
    const double rate = fit_attention_rate(measurements, draft, direction, fitted);
    const LayerReference reference = layer_reference(measurements);
    for (const KernelTimes* times : all) {
        if (is_reference(times->kernel)) continue;
        const double size = static_cast<double>(times->kernel.head_size + times->kernel.value_size) / 2;
        types::HeadSizeRate& entry = entry_for(device.attention_head_sizes, size);
        const Interval share = head_size_share(*times, device, direction, rate, reference);
        draft.figure(fmt::format("{}, share of heads of {:.0f}", direction.name, size), "", share,
                     entry.*direction.share);
        entry.*direction.share = rounded(share.middle, 3);
    }
    entry_for(device.attention_head_sizes, static_cast<double>(kHeadSize)).*direction.share = 1;
}

}  // namespace

void fit_attention(const Measurements& measurements, const Draft& draft) {
    fit_direction(measurements, draft, kForward);
    fit_direction(measurements, draft, kBackward);
    draft.source(
        Section::device, "attention_head_sizes",
        fmt::format("heads that were measured (64, 160 for 192 and 128, 256) by their time beside that of heads "
                    "of 128; others from {}",
                    draft.base().name));
}

}  // namespace stowage::calibrate
