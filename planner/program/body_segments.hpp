#pragma once

// A layer's body in the pieces that alternate with another chunk's when expert-parallel communication is overlapped.
//
// Forward: attention with router and permutation | dispatch | experts | combine | sum. Backward: sum | combine |
// experts | dispatch | attention. An exchange is only issued in its own piece; the piece after it begins with the wait
// for its event, so that whatever stands between the two runs beside it. A layer without experts has no exchange; its
// two halves are the pieces before and between.
//
// Source: Megatron-LM main of August 2026, core/models/common/model_chunk_schedule_plan.py, re-described.
// Tested by: tests/planner/program/body_segments_test.cpp.

#include <array>
#include <cstddef>
#include <vector>

#include "planner/program/step_program.hpp"

namespace stowage::program {

/// Operations from `begin` up to but not including `end`.
struct OperationRange {
    std::size_t begin = 0;
    std::size_t end = 0;
};

enum class Segment : std::uint8_t {
    before,
    first_exchange,
    between,
    second_exchange,
    after,
    between_gradients,
    after_gradients
};
inline constexpr int kSegmentCount = 7;
constexpr std::size_t index(Segment segment) { return static_cast<std::size_t>(segment); }

/// Some of them may be empty; the last two are those of delayed weight gradients.
using BodySegments = std::array<Body, kSegmentCount>;

/// `exchanges`: the body's token exchanges, each the wait for the main stream, the collective, and the main stream's
/// wait for it if it blocks. `event`: number of the frame's first exchange event.
/// Throws: std::logic_error if the body exchanges tokens more than there and back.
BodySegments split_forward(const Body& body, const std::vector<OperationRange>& exchanges, std::uint32_t event);
BodySegments split_backward(const Body& body, const std::vector<OperationRange>& exchanges, std::uint32_t event);

/// Moves the weight gradients out of the two compute pieces of a backward, and with them what is freed after the first
/// one: their operands live until then, and so, as an upper bound, does everything freed behind them.
void delay_weight_gradients(BodySegments& segments);

}  // namespace stowage::program
