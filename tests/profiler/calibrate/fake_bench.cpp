#include "tests/profiler/calibrate/fake_bench.hpp"

namespace stowage::calibrate {
namespace {

using types::operator""_GiB;
using types::operator""_MiB;

constexpr int kOutlierEvery = 23;
constexpr double kScatter = 0.01;

}  // namespace

double FakeBench::scattered(double value) {
    const double part = static_cast<double>(numbers_() % 20001) / 10000 - 1;
    const double outlier = ++drawn_ % kOutlierEvery == 0 ? 1.5 : 1;
    return value * (1 + kScatter * part) * outlier;
}

Machine FakeBench::machine() {
    return {.device = device_,
            .compute_capability = 90,
            .multiprocessors = 132,
            .devices = devices_,
            .total_memory = 140_GiB,
            .driver = "13.0",
            .cuda = "13.0",
            .cublaslt = "13.1.0",
            .cudnn = "9.14.0",
            .power_limit_watts = 700,
            .monitor_absence = shows_clocks_ ? "" : "there is no management library"};
}

Prepared FakeBench::prepare(std::span<const KernelCase> kernels) {
    Prepared prepared{{500_MiB, 20_MiB, 60_MiB, 80_MiB, 139_GiB}, {}};
    for (const KernelCase& kernel : kernels)
        if (!refused_.empty() && name_of(kernel).find(refused_) != std::string::npos)
            prepared.refused.push_back({kernel, "no"});
    return prepared;
}

double FakeBench::exact_us(const KernelCase& kernel, double clock) const {
    const KernelWork work = work_of(kernel);
    const double part = clock / truth_.layer_mhz;
    KernelRates rates{.tflop_per_s = truth_.gemm_tflop * part,
                      .gb_per_s = truth_.memory_gb,
                      .overhead_us = truth_.overhead_us,
                      .ramp_us = truth_.ramp_us};
    if (kernel.kind == KernelKind::fp8_forward) rates.tflop_per_s = truth_.fp8_tflop * part;
    if (kernel.kind == KernelKind::strided_copy) rates.gb_per_s = truth_.strided_gb;
    if (kernel.depth > 0) return gemm_us(work, rates);
    if (!is_attention(kernel.kind)) return memory_us(work, rates);
    const bool forward = kernel.kind == KernelKind::attention_forward;
    const std::int64_t size = (kernel.head_size + kernel.value_size) / 2;
    const double share = size == 64    ? truth_.share_64
                         : size == 160 ? truth_.share_160
                         : size == 256 ? truth_.share_256
                                       : 1.0;
    rates.tflop_per_s = (forward ? truth_.forward_tflop : truth_.backward_tflop) * share * part;
    rates.loss = forward ? truth_.forward : truth_.backward;
    return attention_us(work, rates);
}

Block FakeBench::run(const KernelCase& kernel, double /*milliseconds*/) {
    asked_.push_back("run " + name_of(kernel));
    const double clock = 1450 + static_cast<double>(numbers_() % 250);
    return {scattered(exact_us(kernel, clock)), state(clock)};
}

/// A chip that works less has a higher clock.
std::vector<MixRound> FakeBench::run_mix(std::span<const KernelCase> kernels, double duty, double /*seconds*/) {
    asked_.push_back("mix " + std::to_string(duty));
    const double clock = truth_.layer_mhz * (1 + 0.2 * (1 - duty));
    std::vector<MixRound> rounds(20);
    for (MixRound& round : rounds) {
        round.state = state(clock);
        for (const KernelCase& kernel : kernels) round.call_us.push_back(scattered(exact_us(kernel, clock)));
    }
    return rounds;
}

BesideBlock FakeBench::run_beside(const KernelCase& kernel, double /*milliseconds*/, Beside beside) {
    asked_.push_back("beside " + std::to_string(index(beside)) + " " + name_of(kernel));
    const double excess = kernel.depth > 0            ? truth_.gemm_excess
                          : is_attention(kernel.kind) ? truth_.attention_excess
                                                      : truth_.memory_excess;
    const bool copies = beside != Beside::nothing;
    const double covered = copies ? 0.9 : 0;
    const double noise = 0.001 * (static_cast<double>(numbers_() % 2001) / 1000 - 1);
    return {{exact_us(kernel, 1500) * (1 + excess * covered) * (1 + noise), state(1500)}, covered};
}

double FakeBench::copy(const CopyCase& copy) {
    asked_.push_back("copy " + std::to_string(copy.size.count));
    const double rate = copy.pinned ? truth_.link_gb : truth_.pageable_gb;
    return scattered(truth_.copy_fixed_us + static_cast<double>(copy.size.count) / (rate * 1e3));
}

/// Each keeps its share of the rate until the other one is done.
DuplexRound FakeBench::copy_both(Bytes size) {
    const double alone = 10 * (truth_.copy_fixed_us + static_cast<double>(size.count) / (truth_.link_gb * 1e3));
    const double first = alone / truth_.to_host_kept;
    const double left = alone - first * truth_.to_device_kept;
    return {10, first, first + left};
}

SharedCopies FakeBench::copy_on_all(CopyDirection direction, Bytes size) {
    asked_.push_back("copy on all");
    return {direction, size, std::vector<double>(static_cast<std::size_t>(devices_), 40.0)};
}

double FakeBench::host_call(HostCall call) { return scattered(host_call_us(call)); }

double FakeBench::launch_graph(const GraphShape& shape) {
    asked_.emplace_back("launch graph");
    return scattered(truth_.graph_launch_us + truth_.graph_node_us * shape.kernels +
                     truth_.graph_branch_us * (shape.branches - 1));
}

GraphStock FakeBench::stock_graphs(const GraphShape& shape, int graphs) {
    asked_.emplace_back("stock graphs");
    const std::int64_t each =
        truth_.graph_bytes + truth_.node_bytes * shape.kernels + truth_.branch_bytes * (shape.branches - 1);
    const std::int64_t there = first_stock_ ? truth_.bytes_there_already : 0;
    first_stock_ = false;
    return {shape, graphs, Bytes{each * graphs - there}, truth_.instantiate_node_us * shape.kernels};
}

double FakeBench::empty_kernels(int kernels, bool in_graph) {
    return 10 + kernels * (in_graph ? truth_.node_us : truth_.overhead_us);
}

}  // namespace stowage::calibrate
