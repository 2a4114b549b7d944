#pragma once

// The caching allocator's two ways to a device, for real: where segments come from, and whether events are done.
//
// Tested by: tests/executor/engine/cuda_memory_test.cpp, on a device.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/event.hpp"
#include "planner/memory/device_memory.hpp"

namespace stowage::executor {

/// Segments by cudaMalloc; ranges of expandable segments by the driver's virtual memory, mapped in granules of 2 MiB.
/// On the device that was current when it was made. What is still held when this ends is freed. Calls are let through
/// while this thread captures.
/// Throws: DeviceError from every call, except where the device has no room: that is an answer.
class CudaDeviceMemory final : public memory::DeviceMemory {
public:
    using Address = memory::Address;
    using Bytes = types::Bytes;

    /// Mapping is by whole pieces of this size, the smallest that devices since compute capability 7.0 map.
    static constexpr std::int64_t kGranule = 2LL << 20;

    CudaDeviceMemory();
    CudaDeviceMemory(const CudaDeviceMemory&) = delete;
    CudaDeviceMemory& operator=(const CudaDeviceMemory&) = delete;
    CudaDeviceMemory(CudaDeviceMemory&&) = delete;
    CudaDeviceMemory& operator=(CudaDeviceMemory&&) = delete;
    ~CudaDeviceMemory() override;

    std::optional<Address> reserve(Bytes size) override;
    /// Waits for the device. Throws: std::logic_error if the range was not reserved.
    void release(Address base, Bytes size) override;
    [[nodiscard]] Bytes capacity() const override { return capacity_; }
    Address reserve_range(Bytes size) override;
    /// Throws: std::logic_error if the range was not reserved, or something is mapped in it.
    void release_range(Address base, Bytes size) override;
    /// Cost: two calls to the driver a granule. Throws: std::logic_error unless these are whole granules.
    bool map(Address base, Bytes size) override;
    /// Waits for the device, which may still use what is unmapped. Throws: std::logic_error unless all of it is mapped.
    void unmap(Address base, Bytes size) override;

    /// Held from the device now: segments and mapped granules.
    [[nodiscard]] Bytes held() const { return held_; }

private:
    class Driver;
    struct Range {
        Bytes size;
        std::map<Address, unsigned long long> granules;  ///< mapped: address to the driver's handle
    };

    Range& range_of(Address address, Bytes size);
    [[nodiscard]] bool map_granule(Range& range, Address address);
    void unmap_granules(Range& range, Address base, Address end);
    const Driver& driver();
    void release_ranges() noexcept;

    int device_ = 0;
    Bytes capacity_;
    Bytes held_;
    std::map<Address, DeviceBuffer> segments_;
    std::map<Address, Range> ranges_;
    std::unique_ptr<Driver> driver_;
};

/// One question and what the device said.
struct EventAnswer {
    std::uint64_t event = 0;  ///< the how-manieth record, from 0
    bool done = false;
    friend bool operator==(const EventAnswer&, const EventAnswer&) = default;
};

/// Events on real streams, from a pool; every answer is logged, so that a simulation can give the same ones.
class CudaStreamEvents final : public memory::StreamEvents {
public:
    using EventHandle = memory::EventHandle;

    /// `streams[n]` is stream n of the program; they outlive this.
    explicit CudaStreamEvents(std::vector<StreamRef> streams) : streams_(std::move(streams)) {}

    /// Throws: DeviceError; std::out_of_range for a stream that there is not.
    EventHandle record(memory::Stream stream) override;
    /// Throws: DeviceError; std::logic_error for an event that is unknown or was said to be done before.
    bool completed(EventHandle event) override;
    /// Waits for the device, whatever its streams. Throws: DeviceError.
    void wait_all() override;

    /// In the order of asking.
    [[nodiscard]] const std::vector<EventAnswer>& answers() const { return answers_; }
    /// Forgets the answers so far; numbers go on.
    void clear_answers() { answers_.clear(); }

private:
    std::vector<StreamRef> streams_;
    std::unordered_map<std::uint64_t, Event> recorded_;
    std::vector<Event> spare_;
    std::vector<EventAnswer> answers_;
    std::uint64_t next_ = 0;
};

}  // namespace stowage::executor
