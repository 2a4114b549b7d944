#pragma once

// What the streams of one rank are ordered behind, as the program itself says it: each stream's own order, events and
// waits, the host's waits; never how long anything takes.
//
// Each stream counts the work that it was given; a place is such a count. A stream's clock holds, for every stream, the
// place up to which that one's work is done before the stream's next work begins. Work advances the stream's own entry;
// a wait takes the larger of two clocks, entry by entry.
//
// Worked example: two kernels on main, d2h waits for main, a copy on d2h, an event there, a third kernel on main.
// Main's clock is (main 3, d2h 0): a buffer that the copy reads must not be written by a fourth kernel. Once main has
// waited for the event its clock is (3, 1), and it may.
//
// A launched graph is one piece of work on its stream: its branches join before it ends. The external event that it
// records lies somewhere inside, so whoever waits for it is only known to be behind what came before the launch.
//
// Tested by: tests/planner/program/stream_order_test.cpp.

#include <array>
#include <cstdint>
#include <vector>

#include "planner/program/operation.hpp"

namespace stowage::program {

class StreamOrder {
public:
    using Place = std::uint32_t;
    using Clock = std::array<Place, kStreamCount>;

    /// `events`: how many the program has (StepProgram::event_count).
    explicit StreamOrder(std::uint32_t events = 0) : recorded_(events, Clock{}) {}

    /// The host issues an operation. `event` is the program-wide number of the event that it records or waits for, for
    /// graph_launch that of the graphs' external event. An event never recorded holds nobody back. graph_begin and
    /// graph_end order everything: captured graphs are taken to follow one another. What does not concern the order
    /// (memory, host work) changes nothing. Cost: O(streams), of the two that wait for the host O(streams^2).
    void issue(const Operation& operation, std::uint32_t event = 0);
    /// All streams wait for one another.
    void join_all();

    /// All that the stream was given so far.
    [[nodiscard]] Place place(Stream stream) const { return clocks_[index(stream)][index(stream)]; }
    /// What the next work of the stream is ordered behind.
    [[nodiscard]] const Clock& clock(Stream stream) const { return clocks_[index(stream)]; }
    /// Whether the next work of `next` is ordered behind the work of `earlier` up to `place`.
    [[nodiscard]] bool ordered(Stream next, Stream earlier, Place place) const {
        return clock(next)[index(earlier)] >= place;
    }
    /// Whether what `known` is the clock of is ordered behind all places of `needed`.
    static bool covers(const Clock& known, const Clock& needed) {
        bool all = true;
        for (std::size_t i = 0; i < known.size(); ++i) all = all && known[i] >= needed[i];
        return all;
    }

private:
    void work(Stream stream) { ++clocks_[index(stream)][index(stream)]; }
    void wait(Stream waiting, const Clock& other);
    void host_waits(const Clock& other);

    std::array<Clock, kStreamCount> clocks_{};
    std::vector<Clock> recorded_;
};

}  // namespace stowage::program
