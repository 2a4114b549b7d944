#pragma once

// Which work of a graph that is being captured comes behind which: per stream, how far in every other stream it is
// behind. Numbers count what each stream was given.
//
// Worked example: d2h waits for main at main's 3, copies (d2h's 1); main waits for d2h: main is behind d2h's 1, and
// what is marked on d2h later is not yet.
//
// Tested by: tests/planner/simulator/capture_order_test.cpp.

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "planner/memory/device_memory.hpp"
#include "planner/program/stream.hpp"

namespace stowage::simulator {

class CaptureOrder {
public:
    void begin();
    /// `stream` is given work.
    void work(program::Stream stream);
    void wait(program::Stream stream, program::Stream other);
    void record(std::uint32_t event, program::Stream stream);
    /// Nothing happens if the event was recorded outside the capture.
    void wait_event(program::Stream stream, std::uint32_t event);
    /// A node of its own at the end of the stream, if it has any work.
    std::optional<memory::CaptureMark> mark(program::Stream stream);
    [[nodiscard]] bool is_behind(program::Stream stream, memory::CaptureMark mark) const;

private:
    using Reach = std::array<std::uint32_t, program::kStreamCount>;
    void join(program::Stream stream, const Reach& other);

    std::array<Reach, program::kStreamCount> behind_{};  ///< its own entry: what it was given itself
    std::unordered_map<std::uint32_t, Reach> events_;
};

}  // namespace stowage::simulator
