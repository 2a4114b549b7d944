#include "executor/cuda/event.hpp"

#include <cmath>

namespace stowage::executor {

void EventRef::record(StreamRef stream) const { check(cudaEventRecord(event_, stream.get()), "recording an event"); }

void EventRef::record_external(StreamRef stream) const {
    if (!stream.is_capturing()) {
        record(stream);
        return;
    }
    check(cudaEventRecordWithFlags(event_, stream.get(), cudaEventRecordExternal),
          "putting the record of an external event into a graph");
}

void EventRef::make_wait(StreamRef stream) const {
    check(cudaStreamWaitEvent(stream.get(), event_, cudaEventWaitDefault), "letting a stream wait for an event");
}

void EventRef::make_wait_external(StreamRef stream) const {
    if (!stream.is_capturing()) {
        make_wait(stream);
        return;
    }
    check(cudaStreamWaitEvent(stream.get(), event_, cudaEventWaitExternal),
          "putting the wait for an external event into a graph");
}

bool EventRef::is_done() const {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());
        return false;
    }
    check(code, "asking whether an event is done");
    return true;
}

void EventRef::synchronize() const { check(cudaEventSynchronize(event_), "waiting for an event"); }

Event::Event(EventTiming timing) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, timing == EventTiming::on ? cudaEventDefault : cudaEventDisableTiming),
          "making an event");
    handle_ = UniqueHandle<cudaEvent_t, EventTraits>(event);
}

types::Nanoseconds elapsed(EventRef start, EventRef end) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.get(), end.get()), "reading the time between two events");
    return types::Nanoseconds(std::llround(static_cast<double>(milliseconds) * 1e6));
}

}  // namespace stowage::executor
