#pragma once

// The device buffers of one stage of a run with what decides whether two may share bytes. Used by plan_memory.
//
// Tested by: tests/planner/memory/planned_memory_test.cpp.

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/program/step_program.hpp"
#include "planner/program/stream_order.hpp"

namespace stowage::memory {

/// One `allocate` operation of a stage and the life of what it made. `made` and `gone` count the allocations and frees
/// of the stage in the order the host issues them.
struct PlannedBuffer {
    static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
    types::Bytes bytes;  ///< as the program says
    std::uint32_t slot = 0;
    program::Stream stream{};
    std::uint32_t made = 0;
    std::uint32_t gone = kNever;           ///< not freed in this stage
    program::StreamOrder::Clock known{};   ///< what its stream was ordered behind when it was allocated
    program::StreamOrder::Clock needed{};  ///< the places up to which streams use it; complete if it is freed
    std::int32_t microbatch = -1;
    std::uint32_t pool = 0;  ///< capture: whether its graph runs on the manager's stream
};

struct StageBuffers {
    std::vector<PlannedBuffer> buffers;          ///< in the order of the stage's allocate operations
    std::vector<std::uint32_t> freed_elsewhere;  ///< slots that the stage frees and did not allocate before
};

/// Follows one stage. What uses a buffer: the stream it was allocated for, up to the free, or if that is a stream that
/// only loads (h2d) up to the copy that fills it; the free's own stream and those named by record_stream, up to the
/// free. Cost: O(operations).
StageBuffers planned_buffers(const program::StepProgram& program, program::RunStage stage);

/// Whether `later`, allocated after `earlier`, may lie on its bytes.
inline bool may_share(const PlannedBuffer& earlier, const PlannedBuffer& later) {
    return earlier.gone < later.made && program::StreamOrder::covers(later.known, earlier.needed);
}

}  // namespace stowage::memory
