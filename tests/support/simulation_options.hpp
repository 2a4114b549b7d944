#pragma once

#include "planner/simulator/rank_simulator.hpp"

namespace stowage::tests {

/// The usual options with one thing changed; nest them for more.
inline simulator::SimulationOptions without_interference(simulator::SimulationOptions options = {}) {
    options.interference = false;
    return options;
}
inline simulator::SimulationOptions traced(simulator::SimulationOptions options = {}) {
    options.trace = true;
    return options;
}
inline simulator::SimulationOptions limited_to(types::Bytes memory, simulator::SimulationOptions options = {}) {
    options.device_memory = memory;
    return options;
}

}  // namespace stowage::tests
