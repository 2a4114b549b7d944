#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

using types::Bytes;

/// A position in a device's address space, in bytes.
using Address = std::uint64_t;

/// A stream by number; 0 is the default stream.
using Stream = std::uint32_t;
inline constexpr Stream kMaxStreams = 64;

/// A private pool, by a number that the caller chooses (torch.cuda.graph_pool_handle()).
enum class PoolId : std::uint32_t {};

/// Where the caching allocator gets its segments from: virtual addresses in the simulator, cudaMalloc on a GPU.
class DeviceMemory {
public:
    virtual ~DeviceMemory() = default;
    /// The base address of a new segment, or nothing if the device has no room for it.
    virtual std::optional<Address> reserve(Bytes size) = 0;
    /// Gives back a segment of `reserve`, whole.
    virtual void release(Address base, Bytes size) = 0;
    /// A capture begins: the first of a process opens addresses that segments take from then on.
    virtual void begin_capture() {}

    /// The memory of the device, by which the ranges of expandable segments are sized.
    [[nodiscard]] virtual Bytes capacity() const = 0;
    /// The base of a range of addresses without memory behind them.
    virtual Address reserve_range(Bytes size) = 0;
    /// Gives back a range of `reserve_range`, whole, of which nothing is mapped.
    virtual void release_range(Address base, Bytes size) = 0;
    /// Puts memory behind a part of a range, or changes nothing and says no if the device has no room for all of it.
    virtual bool map(Address base, Bytes size) = 0;
    /// Takes that memory away again.
    virtual void unmap(Address base, Bytes size) = 0;
};

enum class EventHandle : std::uint64_t {};

/// A point in the order of a graph being captured.
enum class CaptureMark : std::uint64_t {};

/// How time reaches the caching allocator: has the work that a stream had when an event was recorded been done?
/// The simulator answers from virtual time, a GPU from cudaEventQuery, a replay from logged answers.
class StreamEvents {
public:
    virtual ~StreamEvents() = default;
    /// Marks the end of what `stream` has been given so far.
    virtual EventHandle record(Stream stream) = 0;
    /// Whether that work is done. Asked until the answer is yes, and then never again.
    virtual bool completed(EventHandle event) = 0;
    /// Waits until the device is idle: from then on the answer for every event recorded so far is yes.
    virtual void wait_all() = 0;

    /// In a capture: the end of what `stream` has been given so far in the graph, what it waits for included; nothing
    /// if that is nothing. Asked, as the next one is, only under graph_capture_record_stream_reuse.
    virtual std::optional<CaptureMark> mark(Stream /*stream*/) { return std::nullopt; }
    /// Whether the graph orders everything that `stream` is given from now on behind `mark`.
    virtual bool is_behind(Stream /*stream*/, CaptureMark /*mark*/) { return false; }
};

/// Device memory that is only addresses. A device maps segments page by page, so what limits it is the sum of bytes,
/// not the gaps between segments. Addresses matter where equal free blocks compete, since the lowest wins. They are
/// those that were recorded of a process: segments lie in chunks of whole 32 MiB, each new one below all before it and
/// gone for good once it is empty; a segment takes the lowest gap that holds it and opens a chunk if there is none. One
/// chunk with 26 MiB free is there from the start, and the first capture opens one of 416 MiB above it; both stay.
/// Cost: O(gaps) to reserve, O(log gaps) to release.
class VirtualDeviceMemory final : public DeviceMemory {
public:
    /// No limit: every reservation succeeds.
    VirtualDeviceMemory() { reset(); }
    explicit VirtualDeviceMemory(Bytes limit) : limit_(limit) { reset(); }

    std::optional<Address> reserve(Bytes size) override;
    void begin_capture() override;
    [[nodiscard]] bool has_room(Bytes size) const { return !limit_ || reserved_ + size <= *limit_; }
    /// Throws: std::logic_error if the range was not reserved.
    void release(Address base, Bytes size) override;
    /// The limit, or more than any device has where there is none.
    [[nodiscard]] Bytes capacity() const override { return limit_.value_or(kNoLimit); }
    /// Below the chunks; the addresses are not used again.
    Address reserve_range(Bytes size) override;
    /// Throws: std::logic_error if the range was not reserved.
    void release_range(Address base, Bytes size) override;
    bool map(Address base, Bytes size) override;
    /// Throws: std::logic_error if that much is not mapped.
    void unmap(Address base, Bytes size) override;
    /// Forgets every reservation, and that there was a capture.
    void reset();

    [[nodiscard]] Bytes reserved() const { return reserved_; }

private:
    struct Chunk {
        Address size = 0;
        Address in_use = 0;
    };
    using Chunks = std::map<Address, Chunk>;  ///< by base
    using Gaps = std::map<Address, Address>;  ///< base to size

    static constexpr Address kMiB = Address{1} << 20;
    static constexpr Address kChunkStep = 32 * kMiB;
    static constexpr Address kFirstChunk = Address{1} << 62;
    static constexpr Address kTakenOfFirst = 6 * kMiB;  ///< by what the process had before
    static constexpr Address kCaptureChunk = kFirstChunk + 2 * kChunkStep;
    static constexpr Address kCaptureChunkSize = 416 * kMiB;
    static constexpr Bytes kNoLimit{1LL << 44};

    [[nodiscard]] Chunks::iterator chunk_of(Address base);
    void add_gap(Address base, Address end, const Chunks::value_type& chunk);

    std::optional<Bytes> limit_;
    Bytes reserved_;
    Chunks chunks_;
    Gaps gaps_;                       ///< none touches another of its chunk
    Address frontier_ = kFirstChunk;  ///< what lies below was never reserved
};

}  // namespace stowage::memory
