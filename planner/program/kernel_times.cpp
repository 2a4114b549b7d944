#include "planner/program/kernel_times.hpp"

#include <algorithm>

namespace stowage::program {
namespace {

using types::Device;
using types::FlopsPerSecond;
using types::HeadSizeRate;
using types::Nanoseconds;

constexpr double kBlockRows = 128;

Nanoseconds arithmetic_time(double flops, FlopsPerSecond rate) {
    return flops > 0 ? types::compute_time(flops, rate) : Nanoseconds{0};
}

FlopsPerSecond gemm_rate(const layers::Kernel& kernel, const Device& device) {
    if (!kernel.fp8) return device.gemm_bf16;
    const bool slower = kernel.block_scaled && device.gemm_fp8_blockwise.rate > 0;
    return slower ? device.gemm_fp8_blockwise : device.gemm_fp8;
}

/// The rate of this head size as a share of that of 128; that of the nearest known size outside of them.
double head_size_share(const std::vector<HeadSizeRate>& rates, double size, double HeadSizeRate::*share) {
    if (rates.empty()) return 1;
    const auto above = std::lower_bound(rates.begin(), rates.end(), size,
                                        [](const HeadSizeRate& rate, double value) { return rate.head_size < value; });
    if (above == rates.end()) return rates.back().*share;
    if (above == rates.begin()) return (*above).*share;
    const HeadSizeRate& upper = *above;
    const HeadSizeRate& lower = *(above - 1);
    const double part = (size - lower.head_size) / (upper.head_size - lower.head_size);
    return lower.*share + part * (upper.*share - lower.*share);
}

double lengthening(const layers::AttentionWork& work, const types::AttentionLoss& loss) {
    const double unevenness = std::clamp(work.longest / work.keys - 1, 0.0, 1.0);
    const double tail = loss.tail_blocks * unevenness * kBlockRows / work.rows;
    return (1 + loss.start_keys / work.keys) * (1 + tail);
}

}  // namespace

Nanoseconds gemm_time(const layers::Kernel& kernel, const Device& device, double faster) {
    const FlopsPerSecond rate{gemm_rate(kernel, device).rate * faster};
    const Nanoseconds multiplying = arithmetic_time(kernel.flops, rate);
    const Nanoseconds reading = types::transfer_time(kernel.traffic - kernel.result, device.memory_bandwidth);
    const Nanoseconds writing = types::transfer_time(kernel.result, device.memory_bandwidth);
    return std::max(multiplying, reading) + writing + kernel.count * (device.kernel_overhead + device.gemm_ramp);
}

Nanoseconds attention_time(const layers::Kernel& kernel, layers::Phase phase, const Device& device, double faster) {
    const bool forward = phase == layers::Phase::forward || phase == layers::Phase::recompute;
    FlopsPerSecond rate = forward ? device.attention_forward_bf16 : device.attention_backward_bf16;
    rate.rate *= faster;
    const layers::AttentionWork& work = kernel.attention;
    if (work.rows > 0 && work.keys > 0) {
        const auto share = forward ? &HeadSizeRate::forward : &HeadSizeRate::backward;
        rate.rate *= head_size_share(device.attention_head_sizes, work.head_size, share);
        rate.rate /= lengthening(work, forward ? device.attention_forward : device.attention_backward);
    }
    const Nanoseconds memory = types::transfer_time(kernel.traffic, device.memory_bandwidth);
    const Nanoseconds between = types::transfer_time(work.between, device.memory_bandwidth);
    return std::max(arithmetic_time(kernel.flops, rate), memory) + between + device.kernel_overhead;
}

types::DutyRate rates_at_duty(const Device& device, double duty) {
    const types::DutyRate full{};
    const std::vector<types::DutyRate>& rates = device.rates_by_duty;
    if (rates.empty() || duty >= full.duty) return full;
    if (duty <= rates.front().duty) return {duty, rates.front().gemm, rates.front().attention};
    const auto above = std::upper_bound(rates.begin(), rates.end(), duty,
                                        [](double value, const types::DutyRate& rate) { return value < rate.duty; });
    const types::DutyRate& upper = above == rates.end() ? full : *above;
    const types::DutyRate& lower = *(above - 1);
    const double part = (duty - lower.duty) / (upper.duty - lower.duty);
    return {duty, lower.gemm + part * (upper.gemm - lower.gemm),
            lower.attention + part * (upper.attention - lower.attention)};
}

}  // namespace stowage::program
