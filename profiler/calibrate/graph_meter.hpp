#pragma once

// What graphs cost: launches, device memory, and kernels inside of them.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "executor/cuda/event.hpp"
#include "executor/cuda/graph.hpp"
#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

class GraphMeter {
public:
    /// Forked copies go from `device` to `pinned`, 64 KiB each. Throws: DeviceError.
    GraphMeter(const std::byte* device, void* pinned, int multiprocessors)
        : device_(device), pinned_(pinned), multiprocessors_(multiprocessors) {}

    /// As Bench says. Throws: DeviceError.
    double launch(const GraphShape& shape);
    GraphStock stock(const GraphShape& shape, int graphs);
    double empty_kernels(int kernels, bool in_graph);

private:
    [[nodiscard]] executor::Graph capture(const GraphShape& shape, int blocks);
    const executor::GraphExec& launched(const GraphShape& shape, int blocks);
    void fork_copies(const executor::Event& fork, std::span<const executor::Event> joins);

    const std::byte* device_;
    void* pinned_;
    int multiprocessors_;
    executor::Stream stream_;
    std::deque<executor::Stream> sides_;
    executor::Event start_{executor::EventTiming::on};
    executor::Event end_{executor::EventTiming::on};
    std::vector<std::pair<std::pair<GraphShape, int>, executor::GraphExec>> launched_;
    std::vector<executor::GraphExec> stock_;
};

}  // namespace stowage::calibrate
