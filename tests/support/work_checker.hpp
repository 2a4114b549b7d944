#pragma once

// Follows a program as the host would issue it and holds every operation with work against the buffers it names.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::tests {

/// What a call does with an operand, by kernel_call.hpp; `bytes`: of the buffer, or -1 where it depends on the rank.
struct ExpectedOperand {
    layers::Access access{};
    std::int64_t bytes = -1;
};
std::vector<ExpectedOperand> expected_operands(const layers::Call& call, const layers::CallSizes& sizes);

struct WorkFacts {
    /// What is wrong, one line each: an operation of the layers without work; operands that are not those of the call,
    /// in number, access or bytes; a buffer that is not allocated (or pinned) when the operation is issued; one that is
    /// read and was never written; a parameter or state that the rank does not have. Of graphs of layers: a buffer of
    /// their own that is not there, or that nothing was copied into before the launch that reads it. What a layer's
    /// graph made is found in the captured frame of its own.
    std::vector<std::string> problems;
    std::int64_t checked = 0;   ///< operations with work
    std::int64_t launches = 0;  ///< of graphs
};

/// Follows the given stages of a run, in order.
WorkFacts check_work(const program::StepProgram& program, const std::vector<program::RunStage>& run);

}  // namespace stowage::tests
