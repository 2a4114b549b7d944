#pragma once

// Walks a program as the host would issue it and looks for what no run may do.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::tests {

/// One operation of an expanded program.
struct IssuedOperation {
    program::Operation operation;
    std::uint32_t frame = 0;  ///< of its slot or event
    std::int32_t microbatch = -1;
};

/// Every operation of a stage in the order the host issues it.
std::vector<IssuedOperation> expand(const program::StepProgram& program, program::RunStage stage);

/// One line: "allocate 2@0 main 8", "copy d2h 'offload x' 8", "record d2h OFF core_attn@1"; slots and events with the
/// frame they are of, bytes last.
std::string text_of(const program::StepProgram& program, const IssuedOperation& issued);
std::vector<std::string> text_of(const program::StepProgram& program, program::RunStage stage);

struct ProgramFacts {
    /// What is wrong, one line each: a slot allocated twice, freed or used while not allocated, freed with other bytes
    /// than it was allocated with, pinned memory likewise, a wait for an event that the run never recorded, and what is
    /// still held at the end though it is not persistent.
    std::vector<std::string> problems;
    /// Reloaded slots that were let go before the main stream had waited for their copy.
    std::int64_t unawaited_reloads = 0;
    types::Bytes peak;         ///< of the device memory that the host has allocated and not freed
    types::Bytes offloaded;    ///< device to host, all stages of the run
    types::Bytes reloaded;     ///< host to device on the copy stream
    types::Bytes read_inline;  ///< host to device on the main stream
};

/// Follows set-up and then the given stages of a run.
ProgramFacts follow(const program::StepProgram& program, const std::vector<program::RunStage>& run);

}  // namespace stowage::tests
