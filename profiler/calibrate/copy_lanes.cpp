#include "profiler/calibrate/copy_lanes.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/workload/kernels/debug.hpp"

namespace stowage::calibrate {
namespace {

using executor::check;
using types::operator""_MiB;
using types::operator""_GiB;

constexpr Bytes kRegion = 1_GiB;  // of host memory for each direction, and of the device's
constexpr Bytes kPageable = 256_MiB;
constexpr Bytes kBesidePiece = 16_MiB;
constexpr double kGuessGbPerS = 50;
constexpr double kGuessFixedUs = 2;
constexpr double kPageableGbPerS = 8;
constexpr double kRunUs = 5000;
constexpr int kMostCopies = 200;
constexpr double kIssueUs = 6;  // host time of a copy at most: the gate stays shut for as long

cudaMemcpyKind kind_of(CopyDirection direction) {
    return direction == CopyDirection::device_to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
}

double guess_us(Bytes size, double gb_per_s) {
    return static_cast<double>(size.count) / (gb_per_s * 1e3) + kGuessFixedUs;
}

int copies_for(double us, Bytes size, double gb_per_s = kGuessGbPerS) {
    return std::clamp(static_cast<int>(us / guess_us(size, gb_per_s)), 1, kMostCopies);
}

/// Shuts a stream for long enough to queue so many copies behind it.
void shut(cudaStream_t stream, int copies) {
    executor::kernels::spin(static_cast<std::uint64_t>((100 + copies * kIssueUs) * 1e3), stream);
    check(cudaGetLastError(), "holding copies back");
}

bool goes(Beside beside, CopyDirection direction) {
    if (beside == Beside::both) return true;
    return beside == (direction == CopyDirection::device_to_host ? Beside::device_to_host : Beside::host_to_device);
}

constexpr std::array<CopyDirection, 2> kDirections{CopyDirection::device_to_host, CopyDirection::host_to_device};

}  // namespace

CopyLanes::CopyLanes(std::byte* memory)
    : memory_(memory), to_host_(kRegion), from_host_(kRegion), pageable_(static_cast<std::size_t>(kPageable.count)) {}

/// Walks through the region, so that no copy finds what the one before left in a cache.
void CopyLanes::issue(CopyDirection direction, Bytes size, int turn, cudaStream_t stream) const {
    const std::int64_t places = std::max<std::int64_t>(kRegion.count / size.count, 1);
    const std::int64_t offset = turn % places * size.count;
    std::byte* const device = memory_ + offset + (direction == CopyDirection::host_to_device ? kRegion.count : 0);
    const bool to_host = direction == CopyDirection::device_to_host;
    std::byte* const host = (to_host ? to_host_ : from_host_).data() + offset;
    check(cudaMemcpyAsync(to_host ? host : device, to_host ? device : host, static_cast<std::size_t>(size.count),
                          kind_of(direction), stream),
          "queueing a copy");
}

double CopyLanes::copy_pinned(const CopyCase& copy) {
    Lane& used = lane(copy.direction);
    const int copies = copies_for(kRunUs, copy.size);
    shut(used.stream.get(), copies);
    start_.record(used.stream.ref());
    for (int i = 0; i < copies; ++i) issue(copy.direction, copy.size, i, used.stream.get());
    used.end.record(used.stream.ref());
    used.end.synchronize();
    return types::in_microseconds(executor::elapsed(start_.ref(), used.end.ref())) / copies;
}

/// The host takes part, so its clock counts.
double CopyLanes::copy_pageable(const CopyCase& copy) {
    Lane& used = lane(copy.direction);
    const int copies = copies_for(kRunUs, copy.size, kPageableGbPerS);
    const bool to_host = copy.direction == CopyDirection::device_to_host;
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < copies; ++i) {
        std::byte* const host = pageable_.data();
        check(cudaMemcpyAsync(to_host ? host : memory_, to_host ? memory_ : host,
                              static_cast<std::size_t>(copy.size.count), kind_of(copy.direction), used.stream.get()),
              "copying pageable memory");
    }
    used.stream.synchronize("copying pageable memory");
    const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
    return taken.count() / copies;
}

double CopyLanes::copy(const CopyCase& copy) { return copy.pinned ? copy_pinned(copy) : copy_pageable(copy); }

DuplexRound CopyLanes::copy_both(Bytes size) {
    const int copies = std::max(2, copies_for(2 * kRunUs, size));
    shut(gate_.get(), 2 * copies);
    start_.record(gate_.ref());
    for (Lane& one : lanes_) start_.make_wait(one.stream.ref());
    for (int i = 0; i < copies; ++i)
        for (const CopyDirection direction : kDirections) issue(direction, size, i, lane(direction).stream.get());
    for (Lane& one : lanes_) one.end.record(one.stream.ref());
    for (Lane& one : lanes_) one.end.synchronize();
    const auto us = [&](CopyDirection direction) {
        return types::in_microseconds(executor::elapsed(start_.ref(), lane(direction).end.ref()));
    };
    return {copies, us(CopyDirection::device_to_host), us(CopyDirection::host_to_device)};
}

void CopyLanes::run_behind(const executor::Event& start, Beside beside, double milliseconds) {
    const int copies =
        std::max(1, static_cast<int>(std::ceil(milliseconds * 1e3 / guess_us(kBesidePiece, kGuessGbPerS))));
    for (const CopyDirection direction : kDirections)
        if (goes(beside, direction)) start.make_wait(lane(direction).stream.ref());
    for (int i = 0; i < copies; ++i)
        for (const CopyDirection direction : kDirections)
            if (goes(beside, direction)) issue(direction, kBesidePiece, i, lane(direction).stream.get());
    for (const CopyDirection direction : kDirections)
        if (goes(beside, direction)) lane(direction).end.record(lane(direction).stream.ref());
}

double CopyLanes::wait(const executor::Event& start, Beside beside) {
    double first = 0;
    for (const CopyDirection direction : kDirections) {
        if (!goes(beside, direction)) continue;
        lane(direction).end.synchronize();
        const double end = types::in_milliseconds(executor::elapsed(start.ref(), lane(direction).end.ref()));
        first = first == 0 ? end : std::min(first, end);
    }
    return first;
}

// --------------------------------------------------------------------------------------------------------- all devices

namespace {

/// Makes the first device current again.
struct FirstDeviceAgain {
    FirstDeviceAgain() = default;
    FirstDeviceAgain(const FirstDeviceAgain&) = delete;
    FirstDeviceAgain& operator=(const FirstDeviceAgain&) = delete;
    FirstDeviceAgain(FirstDeviceAgain&&) = delete;
    FirstDeviceAgain& operator=(FirstDeviceAgain&&) = delete;
    ~FirstDeviceAgain() { static_cast<void>(cudaSetDevice(0)); }
};

struct DeviceLane {
    explicit DeviceLane(Bytes size) : device(size), host(size) {}
    executor::DeviceBuffer device;
    executor::PinnedBuffer host;
    executor::Stream stream;
    executor::Event start{executor::EventTiming::on};
    executor::Event end{executor::EventTiming::on};
};

void queue_on(DeviceLane& lane, CopyDirection direction, Bytes size, int copies) {
    shut(lane.stream.get(), copies);
    lane.start.record(lane.stream.ref());
    const bool to_host = direction == CopyDirection::device_to_host;
    for (int i = 0; i < copies; ++i)
        check(cudaMemcpyAsync(to_host ? lane.host.data() : lane.device.data(),
                              to_host ? lane.device.data() : lane.host.data(), static_cast<std::size_t>(size.count),
                              kind_of(direction), lane.stream.get()),
              "queueing a copy on one of several devices");
    lane.end.record(lane.stream.ref());
}

}  // namespace

SharedCopies copy_on_all_devices(int devices, CopyDirection direction, Bytes size) {
    const FirstDeviceAgain guard;
    std::vector<std::unique_ptr<DeviceLane>> lanes;
    for (int device = 0; device < devices; ++device) {
        check(cudaSetDevice(device), "choosing one of several devices");
        lanes.push_back(std::make_unique<DeviceLane>(size));
    }
    const int copies = copies_for(10 * kRunUs, size);
    for (int device = 0; device < devices; ++device) {
        check(cudaSetDevice(device), "choosing one of several devices");
        queue_on(*lanes[static_cast<std::size_t>(device)], direction, size, copies);
    }
    SharedCopies result{direction, size, {}};
    for (const auto& lane : lanes) {
        lane->end.synchronize();
        const double us = types::in_microseconds(executor::elapsed(lane->start.ref(), lane->end.ref())) / copies;
        result.gb_per_s.push_back(static_cast<double>(size.count) / us / 1e3);
    }
    return result;
}

}  // namespace stowage::calibrate
