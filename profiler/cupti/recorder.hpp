#pragma once

// Records what the device does, and under which of our operations it was issued or captured.
//
//   ActivityRecorder recorder;                       // before the graphs are captured: nodes are noted from here on
//   { const OperationScope scope(&recorder, 3);      // kernels captured here belong to operation 3
//     capture ... }
//   recorder.start();
//   { const OperationScope scope(&recorder, 7); launch the graph }
//   wait for the device
//   recorder.stop();
//   const Recording recording = recorder.take();     // node times: operation 3, launched under 7
//
// One at a time in a process, and nobody else may use CUPTI meanwhile: CUPTI has one subscriber and one set of buffers.
// Gone, it leaves CUPTI as it was: nothing enabled, no callback, no subscriber.
//
// Tested by: tests/profiler/cupti/recorder_test.cpp with a fake CUPTI, recorder_gpu_test.cpp with the real one.

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "profiler/cupti/activity.hpp"
#include "profiler/cupti/record_kinds.hpp"

namespace stowage::profiler {

class CuptiApi;

struct RecorderOptions {
    RecordKinds kinds = kOperationKinds;
    /// Buffers of 8 MiB, for 38,800 kernels or 209,700 calls each, that lie ready from the start on. More are made as
    /// they are needed.
    std::size_t buffers_ahead = 4;
    /// Notes when the host waits, by callback, so that `doubts_about` can say that records stopped coming. Only where
    /// every wait leaves a record: with `synchronizations` or `driver_calls` among the kinds.
    bool watch_waits = false;
    /// Called with the name of each NVTX mark and of each range that begins, on the thread that does it. It may start
    /// and pause the recorder. Ranges need NVTX_INJECTION64_PATH to name the CUPTI that is used.
    std::function<void(std::string_view)> on_nvtx;
    /// Takes CUPTI out of the process at the end. Nobody may be inside a call of CUDA then. Not needed for what is
    /// above; docs/profiler.md has what it costs to leave CUPTI in.
    bool detach = false;
};

class ActivityRecorder {
public:
    /// With the real CUPTI. Throws: CuptiError if it is missing, of another version than 13, or another profiler holds
    /// it; std::logic_error if there is another recorder.
    explicit ActivityRecorder(RecorderOptions options = {});
    /// The same with this CUPTI.
    explicit ActivityRecorder(std::shared_ptr<CuptiApi> cupti, RecorderOptions options = {});
    ActivityRecorder(const ActivityRecorder&) = delete;
    ActivityRecorder& operator=(const ActivityRecorder&) = delete;
    ActivityRecorder(ActivityRecorder&&) = delete;
    ActivityRecorder& operator=(ActivityRecorder&&) = delete;
    ~ActivityRecorder();

    /// From now on what is issued is recorded. Nothing while it records already, or another thread is starting or
    /// pausing it. Throws: CuptiError. Cost: milliseconds, the first time.
    void start();
    /// Gets what was recorded from CUPTI. The device must be idle: what is not done counts as untimed.
    /// Throws: CuptiError.
    void flush();
    /// Records no more from now on. What was issued before and is not done is recorded still. Never throws, and may be
    /// called from `on_nvtx`, as `start` may be.
    void pause() noexcept;
    /// Flushes and records no more. The device must be idle. Throws: CuptiError.
    void stop();

    /// What this thread issues or captures from now on belongs to `operation`. Scopes may nest; the innermost counts.
    /// Cost: some 100 ns. Throws: CuptiError.
    void push_operation(OperationNumber operation);
    /// Throws: CuptiError; std::logic_error if nothing is pushed on this thread.
    void pop_operation();

    /// What was recorded since the last take; what is known of nodes stays. Throws: CuptiError.
    [[nodiscard]] Recording take();
    /// Now, on the clock of the activities. Throws: CuptiError.
    [[nodiscard]] types::Nanoseconds now() const;

private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

/// Pushes an operation as long as it lives; does nothing without a recorder.
class OperationScope {
public:
    OperationScope(ActivityRecorder* recorder, OperationNumber operation);
    OperationScope(const OperationScope&) = delete;
    OperationScope& operator=(const OperationScope&) = delete;
    OperationScope(OperationScope&&) = delete;
    OperationScope& operator=(OperationScope&&) = delete;
    ~OperationScope();

private:
    ActivityRecorder* recorder_;
};

}  // namespace stowage::profiler
