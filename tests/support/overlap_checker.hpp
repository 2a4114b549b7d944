#pragma once

// Walks a stage of a program with every order between its operations spelled out as a graph of nodes, and looks for
// buffers that share bytes though one may still be in use. Knows nothing of clocks.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::tests {

struct Overlaps {
    std::vector<std::string> problems;  ///< one line each
    std::int64_t shared = 0;            ///< pairs of buffers that lie on the same bytes, one after the other
    /// Of programs with work, one line each: reads that nothing orders behind the last write of the buffer, writes that
    /// nothing orders behind it and the reads since. Contents of graphs' own buffers and of lasting ones are not
    /// followed.
    std::vector<std::string> races;
    /// Pinned buffers given back though the main stream, which the next copy waits for, has not waited for their
    /// reload.
    std::int64_t early_pinned_releases = 0;
};

/// `offsets`: of the stage's allocate operations in order; those below 0 are left out. A buffer is in use on the stream
/// it was allocated for and those of record_stream up to its free, on the free's own stream, and one for reloads on its
/// stream up to the copy that fills it; where the program has work, every buffer also by each operation that names it.
Overlaps overlaps(const program::StepProgram& program, program::RunStage stage,
                  const std::vector<std::int64_t>& offsets);

}  // namespace stowage::tests
