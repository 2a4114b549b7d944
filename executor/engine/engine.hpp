#pragma once

// One execution: a rank's program is lowered, its memory taken, its stages run, its steps timed.
//
//     Execution execution(request, progress);   lower, check, take memory, choose algorithms
//     execution.reach_steady();                 set-up, first iteration, capture
//     execution.measure();                      warm-up, timed steps, gradients, one profiled step
// or
//     execution.record();                       warm-up, timed steps, recorded steps
//
// Tested by: tests/executor/engine/execution_gpu_test.cpp, record_gpu_test.cpp.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/cuda/device.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/device_monitor.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "executor/engine/cuda_machine.hpp"
#include "executor/engine/cuda_memory.hpp"
#include "executor/engine/execution.hpp"
#include "executor/engine/gradient_digests.hpp"
#include "executor/engine/interpreter.hpp"
#include "executor/engine/parameters.hpp"
#include "executor/engine/raw_steps.hpp"
#include "planner/program/lowering.hpp"
#include "profiler/cupti/recorder.hpp"

namespace stowage::executor {

class Execution {
public:
    /// Throws: DeviceError without a usable device; OutOfMemory; UnsupportedError for what cannot be executed.
    /// `kept`: pinned memory that outlives this, made larger where it is too small.
    Execution(const ExecutionRequest& request, const Progress& progress, PinnedBuffer* kept = nullptr);

    /// A first iteration is recorded here, if the request asks for it; without steady steps to record, nothing follows.
    void reach_steady();
    void measure();
    /// Only if the request asks for it.
    void record();
    [[nodiscard]] ExecutionResult take() { return std::move(result_); }

private:
    void say(const std::string& text) const;
    void describe();
    void prepare_calls();
    void take_memory();
    void pin(Bytes needed);
    void set_up();
    void begin_training();
    void clear(layers::StowageState state);
    void assign_experts();
    void run_stage(program::RunStage stage);
    void step();
    void warm_up();
    void time_steps();
    void time_launches();
    void digest_steps();
    void profile_step();
    void record_first();
    void record_steady();
    [[nodiscard]] profiler::Recording take_records();
    void run_first_iterations();
    [[nodiscard]] bool stands_in() const { return request_.stand_ins != nullptr; }
    [[nodiscard]] std::unique_ptr<GradientDigests> make_digests() const;
    [[nodiscard]] bool records_steady() const { return request_.record && request_.record->steady > 0; }
    void dump();
    void attribute(OperationId id, bool captured);
    void attribute(profiler::OperationNumber number);
    void end_attribution();
    void sample(const std::string& when);
    void note_memory(program::RunStage stage);
    [[nodiscard]] std::unique_ptr<StepMemory> make_memory();
    [[nodiscard]] std::vector<double> losses() const;

    const ExecutionRequest& request_;
    const Progress& progress_;
    layers::StageLayers stage_;
    program::Lowered lowered_;
    DeviceInfo device_;
    DeviceMonitor monitor_;
    Bytes free_before_;
    std::optional<profiler::ActivityRecorder> recorder_;
    Workload workload_;
    CudaMachine machine_;
    CudaDeviceMemory device_memory_;
    CudaStreamEvents events_;
    DeviceBuffer arena_;
    PinnedBuffer own_pinned_;
    PinnedBuffer& pinned_;
    std::unique_ptr<StepMemory> memory_;
    std::unique_ptr<Interpreter> interpreter_;
    std::vector<PlacedParameter> parameters_;
    std::unique_ptr<GradientDigests> digests_;
    std::uint64_t steps_run_ = 0;
    bool digesting_ = false;
    bool attributing_ = false;  ///< operations are told to the recorder
    bool attributed_ = false;   ///< one of them is
    std::uint32_t recorded_step_ = 0;
    ExecutionResult result_;
};

}  // namespace stowage::executor
