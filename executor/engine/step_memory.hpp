#pragma once

// Where the device memory of a program's slots comes from while it runs.
//
// `caching` is the planner's caching allocator over real memory: it decides addresses as PyTorch's does, asking the
// device whether events are complete. `planned` has decided before: one arena, a fixed offset for each allocation of a
// stage, nothing to decide or ask inside a step.
//
// Tested by: tests/executor/engine/step_memory_test.cpp.

#include <cstdint>
#include <memory>

#include "executor/engine/machine.hpp"
#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/planned_memory.hpp"
#include "planner/program/step_program.hpp"

namespace stowage::executor {

/// What memory a stage took.
struct MemoryCounts {
    Bytes peak_allocated;
    Bytes peak_reserved;
    Bytes allocated;
    Bytes reserved;
    std::int64_t device_calls = 0;  ///< cudaMalloc and cudaFree, since the stage began
};

/// A buffer given out.
struct Buffer {
    Address address = 0;
    Bytes bytes;               ///< as asked for
    std::uint32_t handle = 0;  ///< of the memory's own
};

class StepMemory {
public:
    virtual ~StepMemory() = default;
    /// Counts and allocations by order begin anew.
    virtual void begin(program::RunStage stage) = 0;
    /// Throws: OutOfMemory if there is no room even after everything was tried.
    virtual Buffer allocate(Bytes bytes, program::Stream stream) = 0;
    virtual void free(const Buffer& buffer) = 0;
    virtual void record_stream(const Buffer& buffer, program::Stream stream) = 0;
    virtual void empty_cache() = 0;
    virtual void begin_capture() = 0;
    virtual void end_capture() = 0;
    [[nodiscard]] virtual MemoryCounts counts() const = 0;
};

/// Keeps references to both backends.
std::unique_ptr<StepMemory> caching_memory(const memory::AllocatorConfig& config, memory::DeviceMemory& device,
                                           memory::StreamEvents& events);

/// `base`: address of memory of the plan's size.
std::unique_ptr<StepMemory> planned_memory(memory::PlannedMemory plan, Address base);

}  // namespace stowage::executor
