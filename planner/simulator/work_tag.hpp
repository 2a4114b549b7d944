#pragma once

// How the simulator names a piece of work to the device, so that a finished one finds its way back to the program:
// the instance that launched it and the operation in its body; of a graph's node the instance that launched the graph,
// the place of the captured instance in the graph, and the operation in that one's body.

#include <cstdint>

#include "planner/program/timeline.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::simulator {

inline constexpr int kOperationBits = 20;
inline constexpr int kPlaceBits = 20;
inline constexpr std::uint64_t kNodeBit = std::uint64_t{1} << 63;

constexpr std::uint64_t work_tag(std::uint64_t instance, std::uint64_t operation) {
    return instance << (kOperationBits + kPlaceBits) | operation;
}

/// `place`: of the captured instance in its graph.
inline std::uint64_t node_tag(std::uint64_t launched_by, std::uint64_t place, std::uint64_t operation) {
    STOWAGE_CHECK(place >> kPlaceBits == 0, "a graph holds at most 2^20 instances");
    return kNodeBit | work_tag(launched_by, operation) | place << kOperationBits;
}

/// Instance, operation and, of a node, the place of the captured instance in its graph.
inline program::TimelineEntry entry_of(std::uint64_t tag) {
    const auto low = [](std::uint64_t value, int bits) {
        return static_cast<std::uint32_t>(value & ((std::uint64_t{1} << bits) - 1));
    };
    program::TimelineEntry entry;
    entry.instance = low((tag & ~kNodeBit) >> (kOperationBits + kPlaceBits), 23);
    entry.operation = low(tag, kOperationBits);
    if ((tag & kNodeBit) != 0) entry.captured = low(tag >> kOperationBits, kPlaceBits);
    return entry;
}

}  // namespace stowage::simulator
