#include <fmt/format.h>

#include "profiler/calibrate/fits.hpp"

namespace stowage::calibrate {
namespace {

using types::Nanoseconds;

struct HostFigure {
    const char* name;
    const char* what;
    Nanoseconds types::HostCosts::*member;
    std::vector<HostCall> calls;
};

std::vector<HostFigure> host_figures() {
    using types::HostCosts;
    return {
        {"kernel_launch", "back to back", &HostCosts::kernel_launch, {HostCall::kernel_launch}},
        {"copy_launch",
         "cudaMemcpyAsync of 1 MiB pinned, to the host and from it",
         &HostCosts::copy_launch,
         {HostCall::copy_to_host, HostCall::copy_to_device}},
        {"event_call",
         "record, wait and query",
         &HostCosts::event_call,
         {HostCall::event_record, HostCall::event_wait, HostCall::event_query}},
        {"synchronize", "cudaDeviceSynchronize of an idle device", &HostCosts::synchronize, {HostCall::synchronize}},
        {"device_allocation_call",
         "cudaMalloc of 2 and of 20 MiB",
         &HostCosts::device_allocation_call,
         {HostCall::device_allocation_2_mib, HostCall::device_allocation_20_mib}},
        {"gemm_call",
         "cuBLASLt with a chosen algorithm, forward and both gradients, 256 x 512 x 512",
         &HostCosts::gemm_call,
         {HostCall::gemm_forward, HostCall::gemm_input_gradient, HostCall::gemm_weight_gradient}},
        {"attention_call",
         "a cuDNN graph, forward and backward",
         &HostCosts::attention_call,
         {HostCall::attention_forward, HostCall::attention_backward}},
    };
}

/// Mean over the calls of each one's interval of the median: what a step pays, which makes each as often.
Interval mean_interval(const Measurements& measurements, const std::vector<HostCall>& calls) {
    Interval sum;
    for (const HostCall call : calls) {
        const Interval one = median_interval(measurements.host_calls.at(index(call)));
        sum = {sum.low + one.low, sum.middle + one.middle, sum.high + one.high};
    }
    const auto count = static_cast<double>(calls.size());
    return {sum.low / count, sum.middle / count, sum.high / count};
}

bool has_all(const Measurements& measurements, const std::vector<HostCall>& calls) {
    for (const HostCall call : calls)
        if (measurements.host_calls.at(index(call)).empty()) return false;
    return true;
}

std::string parts_text(const Measurements& measurements, const std::vector<HostCall>& calls) {
    if (calls.size() < 2) return "";
    std::string text;
    for (const HostCall call : calls)
        text += fmt::format("{}{:.2f}", text.empty() ? ": " : ", ", median(measurements.host_calls.at(index(call))));
    return text;
}

void fit_pinned_allocation(const Measurements& measurements, const Draft& draft) {
    const std::vector<double>& times = measurements.pinned_allocation_us_per_gib;
    if (times.empty()) return draft.from_base(Section::host, "pinned_allocation");
    types::HostCosts& host = draft.node().host;
    const Interval value = median_interval(times);
    draft.figure("pinned allocation", "us/GiB", value, types::in_microseconds(host.pinned_allocation_per_gib));
    host.pinned_allocation_per_gib = nanoseconds(value.middle);
    draft.source(Section::host, "pinned_allocation",
                 fmt::format("measured; cudaHostAlloc with first touch, {} pieces", times.size()));
}

void fit_queue_depth(const Measurements& measurements, const Draft& draft) {
    if (measurements.launch_queue_depth <= 0) return draft.from_base(Section::host, "launch_queue_depth");
    const auto depth = static_cast<double>(measurements.launch_queue_depth);
    draft.figure("launch queue depth", "", {depth, depth, depth},
                 static_cast<double>(draft.node().host.launch_queue_depth));
    draft.node().host.launch_queue_depth = measurements.launch_queue_depth;
    draft.source(Section::host, "launch_queue_depth",
                 "measured; launches accepted behind a kernel that does not end, that kernel counted");
}

}  // namespace

void fit_host(const Measurements& measurements, const Draft& draft) {
    types::HostCosts& host = draft.node().host;
    for (const HostFigure& figure : host_figures()) {
        if (!has_all(measurements, figure.calls)) {
            draft.from_base(Section::host, figure.name);
            continue;
        }
        const Interval value = mean_interval(measurements, figure.calls);
        draft.figure(figure.name, "us", value, types::in_microseconds(host.*figure.member));
        host.*figure.member = nanoseconds(value.middle);
        draft.source(Section::host, figure.name,
                     fmt::format("measured, {}, median of {} batches{}", figure.what,
                                 measurements.host_calls.at(index(figure.calls.front())).size(),
                                 parts_text(measurements, figure.calls)));
    }
    fit_pinned_allocation(measurements, draft);
    fit_queue_depth(measurements, draft);
    draft.from_base(Section::host, "framework");
    draft.from_base(Section::host, "memory_bandwidth");
}

}  // namespace stowage::calibrate
