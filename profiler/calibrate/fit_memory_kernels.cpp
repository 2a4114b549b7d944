#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profiler/calibrate/kernel_rows.hpp"

namespace stowage::calibrate {
namespace {

/// Time of one more empty kernel: between the shortest run and the longest one.
std::optional<Interval> slope(const Measurements& measurements, bool in_graph) {
    const EmptyKernels* few = nullptr;
    const EmptyKernels* many = nullptr;
    for (const EmptyKernels& run : measurements.empty_kernels) {
        if (run.in_graph != in_graph || run.total_us.empty()) continue;
        if (few == nullptr || run.kernels < few->kernels) few = &run;
        if (many == nullptr || run.kernels > many->kernels) many = &run;
    }
    if (few == nullptr || few->kernels == many->kernels) return std::nullopt;
    std::vector<double> each;
    const double more = many->kernels - few->kernels;
    for (std::size_t i = 0; i < std::min(few->total_us.size(), many->total_us.size()); ++i)
        each.push_back((many->total_us[i] - few->total_us[i]) / more);
    return median_interval(each);
}

void fit_overhead(const Measurements& measurements, const Draft& draft) {
    types::Device& device = draft.node().device;
    const std::string how = "measured; an empty kernel that fills the device, {} after another, slope from 50 to 400";
    if (const auto in_stream = slope(measurements, false)) {
        draft.figure("kernel overhead", "us", *in_stream, types::in_microseconds(device.kernel_overhead));
        device.kernel_overhead = nanoseconds(in_stream->middle);
        draft.source(Section::device, "kernel_overhead", fmt::format(fmt::runtime(how), "one in a stream"));
    } else {
        draft.from_base(Section::device, "kernel_overhead");
    }
    types::GraphCosts& graph = draft.node().graph;
    if (const auto in_graph = slope(measurements, true)) {
        draft.figure("node overhead", "us", *in_graph, types::in_microseconds(graph.node_overhead));
        graph.node_overhead = nanoseconds(in_graph->middle);
        draft.source(Section::graph, "node_overhead", fmt::format(fmt::runtime(how), "one node"));
    } else {
        draft.from_base(Section::graph, "node_overhead");
    }
}

void fit_bandwidth(const Measurements& measurements, const Draft& draft, KernelKind kind, const std::string& name,
                   const std::string& how, types::BytesPerSecond& rate) {
    const auto cases = cases_of(measurements, [&](const KernelCase& kernel) { return kernel.kind == kind; });
    if (cases.empty()) return draft.from_base(Section::device, name);
    const double overhead = types::in_microseconds(draft.node().device.kernel_overhead);
    std::vector<double> rates;
    for (const Row& row : rows_of_cases(cases))
        rates.push_back(row.work.operand_bytes / (row.block.call_us - overhead) / 1e3);
    const Interval value = median_interval(rates);
    draft.figure(name, "GB/s", value, in_gb(rate));
    rate = gigabytes(value.middle);
    draft.source(Section::device, name, how);
}

}  // namespace

void fit_memory_kernels(const Measurements& measurements, const Draft& draft) {
    types::Device& device = draft.node().device;
    fit_overhead(measurements, draft);
    fit_bandwidth(measurements, draft, KernelKind::memory_copy, "memory_bandwidth",
                  "measured; a vectorised device copy of 512 MiB, bytes read and written", device.memory_bandwidth);
    fit_bandwidth(measurements, draft, KernelKind::strided_copy, "strided_bandwidth",
                  "measured; a kernel of one bf16 a thread that gathers every third run of 128, 32 MiB in all",
                  device.strided_bandwidth);
}

}  // namespace stowage::calibrate
