#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/program/step_program.hpp"
#include "planner/program/stream.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::program {

/// When one operation of one instance ran on its stream; of a graph, one node of one launch. What the simulator
/// predicts and what an executor measures have this form, so that a report compares them without knowing which is
/// which.
struct TimelineEntry {
    std::uint32_t instance = 0;            ///< index into the stage's sequence
    std::uint32_t operation = 0;           ///< index into its body; of a node, into the body that was captured
    std::uint32_t captured = kNotInGraph;  ///< of a node: index into the capture stage's sequence

    static constexpr std::uint32_t kNotInGraph = 0xFFFFFFFF;
    [[nodiscard]] bool in_graph() const { return captured != kNotInGraph; }
    Stream stream = Stream::main;
    types::SimTime start;
    types::SimTime end;
};

/// Memory as the host saw it at one moment (the host runs ahead of the device).
struct MemorySample {
    types::SimTime time;
    Bytes allocated;
    Bytes reserved;
    Bytes pinned;
};

/// One stage of a run on one rank. Times are from the start of the stage.
struct StageTimeline {
    std::vector<TimelineEntry> entries;  ///< in order of their ends
    std::vector<MemorySample> memory;
};

/// What one rank did in one stage of a run.
struct StageResult {
    Nanoseconds duration{0};  ///< until this rank was done
    Bytes peak_allocated{};
    Bytes peak_reserved{};
    Bytes allocated_after{};
    Bytes pinned_peak{};
    Nanoseconds exposed_copy{0};                   ///< main stream idle for a copy, or itself copying
    Nanoseconds host_bound{0};                     ///< main stream idle with nothing issued to it
    std::array<Nanoseconds, kStreamCount> busy{};  ///< time each stream was running something
    std::array<Nanoseconds, 2> copy_busy{};        ///< by Direction, as the copies ran
    std::array<Nanoseconds, 2> copy_alone{};       ///< by Direction, the same copies each alone on its engine
    std::array<Bytes, 2> copied{};                 ///< by Direction
    std::int64_t operations = 0;
    std::int64_t device_allocation_calls = 0;
    Bytes private_pools{};      ///< reserved for graphs, at the end
    Bytes executable_graphs{};  ///< device memory of the driver for them, beside what is reserved, at the end
    std::int64_t graph_launches = 0;
    std::int64_t cache_flushes = 0;  ///< times the allocator gave its cache back because the device was full
};

}  // namespace stowage::program
