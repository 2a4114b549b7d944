#pragma once

// Programs written operation by operation, for tests of what runs them.

#include <cstdint>
#include <vector>

#include "planner/program/step_program.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::tests {

/// A program of one body: `operations` are the first iteration and every later one. They may use slots 0 to `slots` - 1
/// and events 0 to `events` - 1 of scope 0; slots of scope 1 persist.
program::StepProgram hand_program(std::vector<program::Operation> operations, std::uint32_t slots = 0,
                                  std::uint32_t events = 0, std::uint32_t persistent = 0);

/// A program with graphs: graph i captures the operations `graphs`[i]; in a steady step a graph_launch with slot i
/// launches it. Events are those of scope 0, and the graphs' external one (kGraphScope, slot 0). Nodes and branches are
/// counted as the lowering counts them. The first iteration does nothing.
program::StepProgram hand_graphs(std::vector<std::vector<program::Operation>> graphs,
                                 const std::vector<program::Operation>& steady, std::uint32_t events = 0);

/// A machine whose host issues in no time, whose copies take `copy_per_mib` for each MiB and slow nothing.
types::Node quiet_node(types::Nanoseconds copy_per_mib = types::Nanoseconds{1000});

}  // namespace stowage::tests
