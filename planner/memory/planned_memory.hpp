#pragma once

// Fixed addresses for all device memory of a program, so that nothing is asked of the device inside a step.
//
// One arena holds, in this order, what lives from step to step (states, from set-up on), the memory of graphs (what the
// capture stage allocates, shared with nothing else), and the steady step, which begins and ends with every stream
// joined: the executor waits for the device between steps, and that is what lets the next step start on the same bytes.
//
// Within a step two buffers share bytes only if the second one's stream is, where it is allocated, ordered behind every
// use of the first by the program itself: streams are FIFO, events and waits are as written (StreamOrder). No event is
// asked about while the step runs, so an address never depends on how fast anything was. What a buffer that left for
// the host occupied is free for others as soon as the stream that wants it has waited for the copy.
//
// Worked example, bytes in MiB: main allocates A (4), d2h copies it, main frees it and allocates B (4). B lies behind
// A, at 4: the copy may still read A. Had main waited for the copy's event in between, B would lie at 0.
//
// Graphs: memory may pass from one captured graph to the next as their capture says, since replays come in the order of
// the captures; those on the manager's stream and those on the main one, which nothing orders, have memory of their
// own.
//
// Addresses are chosen as the buffers come (lowest gap, smallest gap) and, for few, by falling size; the smallest
// region wins, the simplest rule among equals. In the order of allocation equal states get equal addresses: with one
// pipeline stage every microbatch finds its tensors where the first one had them. By falling size that holds if one
// microbatch is placed and the others are laid on it; where microbatches overlap (pipelines) every buffer is placed.
//
// Tested by: tests/planner/memory/planned_memory_test.cpp, against a walk with full happens-before.

#include <array>
#include <cstdint>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::memory {

using types::Bytes;

struct PlannedMemory {
    /// Of every address from the start of the arena. The hardware and cuBLASLt's fastest kernels ask for less; the
    /// caching allocator rounds to the same, so that both hold the same bytes for a buffer.
    static constexpr Bytes kAlignment{512};
    /// Up to this many buffers of a stage are placed by falling size too.
    static constexpr std::size_t kFew = 4096;
    /// Of an `allocate` operation that is not planned: in stages before the capture, what does not outlive its step.
    static constexpr std::int64_t kNowhere = -1;

    struct Region {
        std::int64_t begin = 0;
        std::int64_t size = 0;
        /// The most bytes of it that no placement could make share; `size` is as small as can be if they are equal.
        std::int64_t live_peak = 0;
        friend bool operator==(const Region&, const Region&) = default;
    };
    Region states;
    Region graphs;
    Region step;
    Bytes steady_peak;  ///< of a steady step, as its host counts what it holds (planned_steady_peak)
    /// By RunStage and number of the `allocate` operation in the stage, in the order the host issues them: bytes from
    /// the start of the arena. `setup`, `capture` and `steady` are complete.
    std::array<std::vector<std::int64_t>, program::kRunStageCount> offsets;

    /// What is taken from the device, once.
    [[nodiscard]] Bytes size() const { return Bytes{step.begin + step.size}; }
    [[nodiscard]] std::int64_t offset(program::RunStage stage, std::size_t number) const {
        return offsets[static_cast<std::size_t>(stage)].at(number);
    }
    friend bool operator==(const PlannedMemory&, const PlannedMemory&) = default;
};

/// Cost: O(operations) and O(gaps) an allocation; O(N^2) more below PlannedMemory::kFew buffers. Deterministic.
PlannedMemory plan_memory(const program::StepProgram& program);

}  // namespace stowage::memory
