#pragma once

// One rank of a program on whose device nothing is shared (UnsharedStreams) and whose memory does not depend on the
// time (MemoryWalk): what most programs without offloading are. It gives what RankSimulator gives, to the nanosecond
// and the byte, without the moments of a virtual device and without looking at the clock in the allocator.
//
// Limits: no timeline; a step with offloading, graphs or kernels on several streams is RankSimulator's.
// Tested by: tests/planner/simulator/unshared_rank_test.cpp, against RankSimulator.

#include <array>
#include <cstdint>
#include <vector>

#include "planner/simulator/memory_walk.hpp"
#include "planner/simulator/rank_simulator.hpp"
#include "planner/simulator/unshared_streams.hpp"

namespace stowage::simulator {

class UnsharedRank {
public:
    using Channels = RankSimulator::Channels;

    /// Whether the program is of this kind and the options ask for nothing else.
    static bool handles(const program::StepProgram& program, const types::Node& node, const SimulationOptions& options);

    // As of RankSimulator; out_of_memory also where the cache would have to be given back, for which time matters.
    UnsharedRank(const program::StepProgram& program, const types::Node& node, const SimulationOptions& options,
                 const Channels& channels);
    void begin(RunStage stage, Tick time);
    /// The stage's memory, which does not wait for its time; before `run`.
    void walk() { full_ = !memory_.walk(*sequence_); }
    /// Whether the stage asks the device for memory, and whether it gets less than it asks for.
    [[nodiscard]] bool takes_memory() const { return !memory_.device_calls().empty(); }
    [[nodiscard]] bool full() const { return full_; }
    RankState run();
    [[nodiscard]] std::uint64_t progress() const { return static_cast<std::uint64_t>(executed_) + streams_.progress(); }
    [[nodiscard]] Tick finished_at() const { return host_; }
    [[nodiscard]] StageResult result() const;
    [[nodiscard]] StageTimeline take_timeline() { return {}; }
    [[nodiscard]] memory::PinnedStats pinned() const { return {}; }

private:
    /// What of an operation takes time.
    struct Operation {
        Tick cost = 0;  ///< to the host
        Tick length = 0;
        std::uint32_t event = 0;
        std::uint32_t number = 0;  ///< in its body
        program::OperationKind kind{};
        Stream stream{};
        Stream other{};
        program::Scope scope = 0;
        program::TransferKind transfer{};
        std::uint16_t launches = 1;
    };

    [[nodiscard]] Operation prepared(const program::Operation& operation, std::uint32_t number) const;
    bool run_instance(const program::Instance& instance);
    void pay_device_calls(std::uint32_t before);
    bool execute(const program::Instance& instance, const Operation& operation);
    bool launch_queue_has_room(Stream stream, std::uint16_t launches);
    void launch(const Operation& operation);
    [[nodiscard]] std::uint32_t event_of(const program::Instance& instance, const Operation& operation) const;
    bool synchronise(const Operation& operation);
    bool finish_stage();

    const program::StepProgram& program_;
    const types::Node& node_;
    Channels channels_;
    MemoryWalk memory_;
    UnsharedStreams streams_;
    std::vector<std::vector<Operation>> bodies_;
    std::vector<std::uint64_t> program_events_;  ///< the last recording of each event, plus one; 0 is none

    const std::vector<program::Instance>* sequence_ = nullptr;
    bool full_ = false;  ///< the device ran full in this stage
    std::size_t next_device_call_ = 0;
    std::size_t instance_ = 0;
    std::size_t operation_ = 0;
    Tick host_ = 0;
    Tick stage_begin_ = 0;
    Tick synchronised_ = 0;  ///< when the host last began to wait
    Tick host_bound_ = 0;
    std::int64_t executed_ = 0;
};

}  // namespace stowage::simulator
