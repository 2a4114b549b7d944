#pragma once

// Runs a step program: the second machine, beside the simulator, that a program is for.
//
// The interpreter walks the instances of a stage in the order of the host, keeps what each slot of each frame holds,
// and tells a Machine what to do with which addresses. It decides nothing: what is copied, waited for, captured and
// launched is the program's. What other ranks would do is a delay of the modelled length.
//
// Worked example: forward(0) allocates slot kInput of frame 1; the memory gives it an address; the GEMM whose work
// names (neighbour's frame, kInput) is launched on that address.
//
// Tested by: tests/executor/engine/interpreter_test.cpp, with a machine that only writes down what it is told.

#include <cstdint>
#include <functional>
#include <vector>

#include "executor/engine/machine.hpp"
#include "executor/engine/pinned_layout.hpp"
#include "executor/engine/step_memory.hpp"
#include "planner/program/step_program.hpp"
#include "profiler/cupti/raw_events.hpp"

namespace stowage::executor {

class Interpreter {
public:
    /// Keeps references to all but the layout. `pinned`: address of host memory of the layout's size.
    Interpreter(const program::StepProgram& program, Machine& machine, StepMemory& memory, PinnedLayout layout,
                Address pinned);

    /// Issues a whole stage; the device may still be at it when this returns, except after a capture.
    /// Throws: std::logic_error if an operation has no work, or names a buffer that holds nothing (our bug);
    /// DeviceError; OutOfMemory; and if a graph holds fewer copies than the program put into it.
    void run(program::RunStage stage);

    /// Called before every kernel that clears gradients, outside of captures.
    void before_clear(std::function<void()> call) { before_clear_ = std::move(call); }

    /// Told of every allocation and free outside of captures, and of every copy to the host with where it copies from,
    /// when it is issued.
    using MemoryCall = std::function<void(profiler::MemoryEvent::Kind, OperationId, const Buffer&)>;
    void on_memory(MemoryCall call) { on_memory_ = std::move(call); }

    /// The rank's own buffer; 0 if the program has none of that number.
    /// 0 where the rank lacks it.
    [[nodiscard]] Address state(layers::StowageState state) const;
    [[nodiscard]] Bytes state_bytes(layers::StowageState state) const;
    /// Operations issued in the last stage.
    [[nodiscard]] std::int64_t issued() const { return issued_; }

private:
    struct Held {
        Buffer buffer;
        program::Stream stream = program::Stream::main;
        bool used_elsewhere = false;
        bool pinned = false;
        [[nodiscard]] bool empty() const { return buffer.address == 0; }
    };

    void execute(const program::Operation& operation);
    void compute(const program::Operation& operation);
    void count_node(layers::Call call);
    void copy(const program::Operation& operation);
    void move_to_neighbour(const program::Operation& operation);
    void allocate(const program::Operation& operation);
    void free(const program::Operation& operation);
    void record_stream(const program::Operation& operation);
    void acquire_pinned(const program::Operation& operation);
    void begin_graph();
    void end_graph();

    void tell(profiler::MemoryEvent::Kind kind, const Buffer& buffer) const;

    [[nodiscard]] const program::Work& work_of(const program::Operation& operation) const;
    void resolve(const program::Work& work);
    [[nodiscard]] Address resolve(const program::BufferRef& buffer, const layers::CallSizes& sizes) const;
    [[nodiscard]] Address lasting_address(std::uint32_t frame, std::uint32_t slot) const;
    [[nodiscard]] Address frame_address(const program::BufferRef& buffer) const;
    [[nodiscard]] Address parameter_address(const program::BufferRef& buffer, std::int64_t element_bytes) const;
    [[nodiscard]] Address fp8_address(const program::BufferRef& buffer) const;
    [[nodiscard]] std::uint32_t frame_of(program::Scope scope) const;
    [[nodiscard]] Held& held(const program::Operation& operation);
    [[nodiscard]] const Held* held_state(layers::StowageState state) const;
    [[nodiscard]] std::uint32_t event_of(const program::Operation& operation) const;
    [[nodiscard]] const program::Graph& graph() const { return program_.graphs[instance().graph]; }
    [[nodiscard]] const program::Instance& instance() const { return (*sequence_)[instance_]; }
    [[nodiscard]] OperationId id() const {
        return {static_cast<std::uint32_t>(instance_), static_cast<std::uint32_t>(operation_)};
    }
    [[nodiscard]] Place place() const { return {instance().microbatch, instance().layer}; }
    [[nodiscard]] std::string where(const program::Operation& operation) const;

    const program::StepProgram& program_;
    Machine& machine_;
    StepMemory& memory_;
    PinnedLayout layout_;
    Address pinned_;
    std::function<void()> before_clear_;
    MemoryCall on_memory_;
    std::vector<Held> slots_;
    std::vector<Address> captured_;   ///< by slot: where the capture put it, also if it has freed it since
    std::vector<Address> addresses_;  ///< of the operation at hand
    const std::vector<program::Instance>* sequence_ = nullptr;
    program::RunStage stage_ = program::RunStage::setup;
    std::size_t instance_ = 0;
    std::size_t operation_ = 0;
    std::size_t pinned_acquired_ = 0;
    std::int64_t issued_ = 0;
    bool capturing_ = false;
    CapturedNodes expected_;  ///< of the graph being captured: at least these
};

}  // namespace stowage::executor
