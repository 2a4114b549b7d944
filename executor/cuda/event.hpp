#pragma once

#include "executor/cuda/stream.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::executor {

/// An event of somebody else's, or of an `Event` that outlives this: what functions take.
class EventRef {
public:
    explicit EventRef(cudaEvent_t event) : event_(event) {}
    [[nodiscard]] cudaEvent_t get() const { return event_; }

    /// Marks the end of what `stream` has been given so far; in a capture, a point of the graph that only streams of
    /// the same capture may wait for. Throws: DeviceError.
    void record(StreamRef stream) const;
    /// In a capture: a node of the graph that records the event at every launch, for streams outside of it. Outside of
    /// one: as `record`. Throws: DeviceError.
    void record_external(StreamRef stream) const;
    /// Lets what `stream` is given from now on wait for the last record. Throws: DeviceError.
    void make_wait(StreamRef stream) const;
    /// In a capture: a node of the graph that waits, at every launch, for the last record outside of it. Outside of
    /// one: as `make_wait`. Throws: DeviceError.
    void make_wait_external(StreamRef stream) const;
    /// Whether what was recorded last is done; yes if nothing was. Throws: DeviceError.
    [[nodiscard]] bool is_done() const;
    /// Waits on the host, spinning. Throws: DeviceError.
    void synchronize() const;

private:
    cudaEvent_t event_;
};

enum class EventTiming { off, on };

struct EventTraits {
    static cudaError_t release(cudaEvent_t event) { return cudaEventDestroy(event); }
    static constexpr const char* kName = "an event";
};

/// An event of ours. Without timing it is cheaper to record, and only orders.
class Event {
public:
    /// Throws: DeviceError.
    explicit Event(EventTiming timing = EventTiming::off);
    [[nodiscard]] EventRef ref() const { return EventRef(handle_.get()); }
    [[nodiscard]] cudaEvent_t get() const { return handle_.get(); }

    void record(StreamRef stream) const { ref().record(stream); }
    void record_external(StreamRef stream) const { ref().record_external(stream); }
    void make_wait(StreamRef stream) const { ref().make_wait(stream); }
    void make_wait_external(StreamRef stream) const { ref().make_wait_external(stream); }
    [[nodiscard]] bool is_done() const { return ref().is_done(); }
    void synchronize() const { ref().synchronize(); }

private:
    UniqueHandle<cudaEvent_t, EventTraits> handle_;
};

/// The time between two events with timing, both done. The runtime's resolution is about half a microsecond.
/// Throws: DeviceError, also if one has no timing or is not done.
types::Nanoseconds elapsed(EventRef start, EventRef end);

}  // namespace stowage::executor
