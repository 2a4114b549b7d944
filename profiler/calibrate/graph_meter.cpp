#include "profiler/calibrate/graph_meter.hpp"

#include <chrono>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "profiler/calibrate/probe_kernels.hpp"
#include "profiler/calibrate/statistics.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr std::size_t kForkedBytes = 64 << 10;
constexpr int kLaunches = 9;
constexpr double kLaunchUs = 8;  // host time of a kernel's launch at most
constexpr double kMarginUs = 300;

}  // namespace

/// A copy for each of `joins`, on a side stream of its own, from here.
void GraphMeter::fork_copies(const executor::Event& fork, std::span<const executor::Event> joins) {
    fork.record(stream_.ref());
    for (std::size_t i = 0; i < joins.size(); ++i) {
        const executor::Stream& side = sides_[i];
        fork.make_wait(side.ref());
        check(cudaMemcpyAsync(pinned_, device_, kForkedBytes, cudaMemcpyDeviceToHost, side.get()), "capturing a copy");
        joins[i].record(side.ref());
    }
}

/// Half of the kernels, the forks, the other half, and the joins. Streams and events are made before the capture.
executor::Graph GraphMeter::capture(const GraphShape& shape, int blocks) {
    const executor::Event fork;
    const std::vector<executor::Event> joins(static_cast<std::size_t>(shape.branches - 1));
    while (sides_.size() < joins.size()) sides_.emplace_back();
    executor::Capture capture(stream_.ref());
    for (int kernel = 0; kernel < shape.kernels; ++kernel) {
        if (kernel == shape.kernels / 2) fork_copies(fork, joins);
        empty_kernel(blocks, stream_.get());
    }
    for (const executor::Event& join : joins) join.make_wait(stream_.ref());
    return capture.finish();
}

const executor::GraphExec& GraphMeter::launched(const GraphShape& shape, int blocks) {
    for (const auto& [key, exec] : launched_)
        if (key.first == shape && key.second == blocks) return exec;
    launched_.emplace_back(std::pair(shape, blocks), executor::GraphExec(capture(shape, blocks)));
    const executor::GraphExec& made = launched_.back().second;
    made.upload(stream_.ref());
    made.launch(stream_.ref());
    stream_.synchronize("launching a graph for the first time");
    return made;
}

double GraphMeter::launch(const GraphShape& shape) {
    const executor::GraphExec& exec = launched(shape, 1);
    std::vector<double> times;
    for (int i = 0; i < kLaunches; ++i) {
        const auto start = Clock::now();
        exec.launch(stream_.ref());
        times.push_back(Microseconds(Clock::now() - start).count());
        stream_.synchronize("waiting for a graph");
    }
    return median(times);
}

GraphStock GraphMeter::stock(const GraphShape& shape, int graphs) {
    const executor::Graph graph = capture(shape, 1);
    stream_.synchronize("before graphs are made");
    const Bytes before = executor::device_memory_room().free;
    const auto start = Clock::now();
    stock_.reserve(stock_.size() + static_cast<std::size_t>(graphs));
    for (int i = 0; i < graphs; ++i) stock_.emplace_back(graph);
    const double us = Microseconds(Clock::now() - start).count();
    return {shape, graphs, before - executor::device_memory_room().free, us / graphs};
}

double GraphMeter::empty_kernels(int kernels, bool in_graph) {
    const executor::GraphExec* const exec = in_graph ? &launched({kernels, 1}, multiprocessors_) : nullptr;
    const double held_us = kMarginUs + (in_graph ? 0 : kernels * kLaunchUs);
    executor::kernels::spin(static_cast<std::uint64_t>(held_us * 1e3), stream_.get());
    start_.record(stream_.ref());
    if (exec != nullptr) exec->launch(stream_.ref());
    for (int i = 0; exec == nullptr && i < kernels; ++i) empty_kernel(multiprocessors_, stream_.get());
    end_.record(stream_.ref());
    check(cudaGetLastError(), "launching empty kernels");
    end_.synchronize();
    return types::in_microseconds(executor::elapsed(start_.ref(), end_.ref()));
}

}  // namespace stowage::calibrate
