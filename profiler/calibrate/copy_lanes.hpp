#pragma once

// Copies between the device and host memory, one stream a direction.
//
// Tested by: tests/profiler/calibrate/calibration_gpu_test.cpp.

#include <vector>

#include "executor/cuda/event.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "profiler/calibrate/bench.hpp"

namespace stowage::calibrate {

/// For the current device.
class CopyLanes {
public:
    /// `memory` is the device's side, at least 2 GiB that may be overwritten. Throws: DeviceError.
    explicit CopyLanes(std::byte* memory);

    /// As Bench says. Throws: DeviceError.
    double copy(const CopyCase& copy);
    DuplexRound copy_both(Bytes size);

    /// Queues copies of 16 MiB for about so long behind `start`, in the directions that `beside` names.
    void run_behind(const executor::Event& start, Beside beside, double milliseconds);
    /// Waits for them. Returns the milliseconds from `start`, which has timing, to the first end of a direction.
    double wait(const executor::Event& start, Beside beside);

    [[nodiscard]] void* pinned() const { return to_host_.data(); }

private:
    struct Lane {
        executor::Stream stream;
        executor::Event end{executor::EventTiming::on};
    };
    void issue(CopyDirection direction, Bytes size, int turn, cudaStream_t stream) const;
    double copy_pinned(const CopyCase& copy);
    double copy_pageable(const CopyCase& copy);
    [[nodiscard]] Lane& lane(CopyDirection direction) { return lanes_.at(static_cast<std::size_t>(direction)); }

    std::byte* memory_;
    executor::PinnedBuffer to_host_;
    executor::PinnedBuffer from_host_;
    std::vector<std::byte> pageable_;
    std::array<Lane, 2> lanes_;
    executor::Stream gate_;
    executor::Event start_{executor::EventTiming::on};
};

/// One device after another makes its own memory and streams; then all copy at once.
/// Throws: DeviceError.
SharedCopies copy_on_all_devices(int devices, CopyDirection direction, Bytes size);

}  // namespace stowage::calibrate
