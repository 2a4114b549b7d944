#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"

namespace stowage::reports {

/// One launch of a graph, as its nodes ran.
struct GraphLaunch {
    std::uint32_t instance = 0;                     ///< that launched it: index into the steady sequence
    const program::Operation* operation = nullptr;  ///< the launch
    program::Stream stream{};                       ///< that it was launched on
    types::SimTime start;                           ///< of its first node
    types::SimTime end;                             ///< of its last node, on whatever branch
    /// When the graph recorded the event that those outside wait for: at the end of the last node before it.
    std::optional<types::SimTime> external_event;
};

/// The launches of a steady step, by launching instance. Points into the program.
/// Cost: O(entries * log of launches + operations of graphs).
std::vector<GraphLaunch> graph_launches(const program::StepProgram& program, const program::StageTimeline& timeline);

}  // namespace stowage::reports
