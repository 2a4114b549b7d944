#include "profiler/calibrate/calibration.hpp"

#include <fmt/format.h>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {
namespace {

void describe_machine(const Measurements& measurements, const Draft& draft, const std::string& date) {
    const Machine& machine = measurements.machine;
    types::Node& node = draft.node();
    draft.source(Section::top, "measured",
                 fmt::format("{}, one of {} visible, {}, CUDA {}, driver for {}, cuBLASLt {}, cuDNN {}, by 'stowage "
                             "calibrate'",
                             machine.device, machine.devices, date, machine.cuda, machine.driver, machine.cublaslt,
                             machine.cudnn));
    draft.from_base(Section::top, "gpus_per_node, host_memory");
    node.device.name = machine.device;
    node.device.compute_capability = machine.compute_capability;
    if (measurements.memory.free <= Bytes{0}) return draft.from_base(Section::device, "memory");
    node.device.memory = measurements.memory.free;
    const auto mib = [](Bytes bytes) { return types::in_mib(bytes); };
    draft.source(
        Section::device, "memory",
        fmt::format("measured; {:.0f} MiB in all, less context {:.0f}, kernels {:.0f}, cuBLASLt {:.0f}, cuDNN "
                    "{:.0f}",
                    mib(machine.total_memory), mib(measurements.memory.context), mib(measurements.memory.kernels),
                    mib(measurements.memory.gemms), mib(measurements.memory.attention)));
}

double layer_kernel_us(const types::Device& device, const KernelCase& kernel) {
    const KernelWork work = work_of(kernel);
    if (is_bf16_gemm(kernel.kind)) return gemm_us(work, rates_with(device, in_tflop(device.gemm_bf16)));
    if (!is_attention(kernel.kind)) return memory_us(work, rates_with(device, 1));
    const bool forward = kernel.kind == KernelKind::attention_forward;
    KernelRates rates =
        rates_with(device, in_tflop(forward ? device.attention_forward_bf16 : device.attention_backward_bf16));
    rates.loss = forward ? device.attention_forward : device.attention_backward;
    return attention_us(work, rates);
}

/// Says how well the finished file describes the layer it was measured with, kernel by kernel.
void compare_layer(const Measurements& measurements, Calibration& calibration) {
    const MixTimes* const mix = full_duty(measurements);
    if (mix == nullptr) return;
    const std::vector<double> measured = medians_of(*mix);
    for (std::size_t i = 0; i < measured.size(); ++i)
        calibration.layer.push_back({name_of(mix->kernels[i]), measured[i],
                                     layer_kernel_us(calibration.node.device, mix->kernels[i]), median_state(*mix)});
}

}  // namespace

Calibration calibrate(const Measurements& measurements, const Base& base, const std::string& date) {
    Calibration calibration;
    calibration.node = base.node;
    const Draft draft(base, calibration);
    describe_machine(measurements, draft, date);
    fit_memory_kernels(measurements, draft);
    fit_gemms(measurements, draft);
    fit_attention(measurements, draft);
    fit_duties(measurements, draft);
    fit_copies(measurements, draft);
    fit_beside(measurements, draft);
    fit_host(measurements, draft);
    fit_graphs(measurements, draft);
    for (const char* figure : {"rate", "latency"}) {
        draft.from_base(Section::nvlink, figure);
        draft.from_base(Section::network, figure);
    }
    compare_layer(measurements, calibration);
    return calibration;
}

}  // namespace stowage::calibrate
