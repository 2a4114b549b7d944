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
    std::uint32_t graph = 0;     ///< that it begins, ends or launches
    std::uint32_t instance = 0;  ///< index into the stage's sequence
};

/// Every operation of a stage in the order the host issues it.
std::vector<IssuedOperation> expand(const program::StepProgram& program, program::RunStage stage);
/// What was captured as a graph.
std::vector<IssuedOperation> expand(const program::StepProgram& program, const program::Graph& graph);

/// One line: "allocate main 2@0", "copy d2h 'offload x'", "d2h records OFF core_attn@1"; slots and events with the
/// frame they are of. "GE" is the external event of graphs, "launch 3 graph" the launch of graph 3 on that stream.
std::string text_of(const program::StepProgram& program, const IssuedOperation& issued);
std::vector<std::string> text_of(const program::StepProgram& program, program::RunStage stage);
std::vector<std::string> text_of(const program::StepProgram& program, const program::Graph& graph);

struct ProgramFacts {
    /// What is wrong, one line each: a slot allocated twice, freed or used while not allocated, freed with other bytes
    /// than it was allocated with, pinned memory likewise, a wait for an event that the run never recorded, and what is
    /// still held at the end though it is not persistent. Of graphs: begun or ended out of turn or not where the
    /// program says, a host that waits inside one, a capture that frees what is not a graph's or waits for an event of
    /// another capture, memory of a graph allocated or freed by what is not one, a graph launched before its capture.
    std::vector<std::string> problems;
    /// Reloaded slots that were let go before the main stream had waited for their copy. What another layer's graph
    /// reloaded was there when that graph ended; under Megatron's policy nobody waits for what the same graph reloads.
    std::int64_t unawaited_reloads = 0;
    types::Bytes peak;                ///< of the device memory that the host has allocated and not freed
    types::Bytes offloaded;           ///< device to host, all stages of the run; what graphs copy counts at each launch
    types::Bytes read_by_host;        ///< device to host because the host asks for it
    types::Bytes reloaded;            ///< host to device on the copy stream
    types::Bytes read_inline;         ///< host to device on the main stream
    types::Bytes by_graphs;           ///< the part of `offloaded` that launched graphs copied
    std::int64_t kernels = 0;         ///< that ran, those of launched graphs among them
    std::int64_t launches = 0;        ///< of graphs
    std::int64_t kept_by_graphs = 0;  ///< slots of layers' frames that are still a graph's at the end of the capture
    std::int64_t static_buffers = 0;  ///< slots of the graphs' own frame
};

/// Follows set-up and then the given stages of a run.
ProgramFacts follow(const program::StepProgram& program, const std::vector<program::RunStage>& run);

/// The stages that a program with graphs has instances for, in the order of a run, steady ones twice.
std::vector<program::RunStage> whole_run(const program::StepProgram& program);

}  // namespace stowage::tests
