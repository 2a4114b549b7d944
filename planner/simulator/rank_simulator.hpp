#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/graph_registry.hpp"
#include "planner/memory/pinned_pool.hpp"
#include "planner/program/step_program.hpp"
#include "planner/program/timeline.hpp"
#include "planner/simulator/capture_order.hpp"
#include "planner/simulator/peer_channel.hpp"
#include "planner/simulator/shortage.hpp"
#include "planner/simulator/virtual_device.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::simulator {

using program::OperationKind;
using program::RunStage;
using program::StageResult;
using program::StageTimeline;
using types::Bytes;

/// What a simulation does beside the plain prediction.
struct SimulationOptions {
    bool interference = true;  ///< copies and kernels slow each other
    memory::AllocatorConfig allocator;
    bool trace = false;  ///< keep the timeline of the last stage
    /// What the device has; unlimited if absent. At the limit the allocator gives its cache back and tries again.
    std::optional<Bytes> device_memory;
    /// Stop as soon as a rank has more than this allocated: a search that has an answer need not know by how much.
    std::optional<Bytes> stop_above_allocated;
    /// Threads that pipeline ranks are spread over; the result does not depend on it.
    int threads = 1;
    /// The one rank that is simulated runs as an executor runs it on one GPU: a transfer with a neighbour takes its own
    /// time and waits for nobody.
    bool alone = false;
    /// Always the general way, also where a shorter one gives the same: for tests of that.
    bool plain = false;
};

enum class RankState : std::uint8_t {
    done,
    needs_neighbour,  ///< a neighbour has to move first
    out_of_memory,  ///< the device had no room even after the cache was given back, or the simulation was to stop here
};

/// One rank: a host thread that walks the program, its device, its allocator and its pinned memory. Runs until it is
/// done with a stage or needs a neighbour.
class RankSimulator {
public:
    /// A rank's channel for each kind of transfer; null where it has no neighbour.
    using Channels = std::array<PeerChannel*, program::kTransferKinds>;

    /// Keeps references to program and hardware.
    RankSimulator(const program::StepProgram& program, const types::Node& node, const SimulationOptions& options,
                  const Channels& channels);

    /// Starts a stage at `time`, at or after the end of the one before. `steps`: so many times, one behind the other:
    /// the host goes on with the next one as soon as it has issued one.
    void begin(RunStage stage, Tick time, int steps = 1);
    /// Goes on until the stage is done or something stops it.
    /// Throws: std::logic_error if something but persistent memory is left at its end.
    RankState run();

    /// Grows whenever `run` gets anywhere: operations issued, moments of the device passed, transfers reached, later
    /// promises to the neighbours.
    [[nodiscard]] std::uint64_t progress() const {
        return static_cast<std::uint64_t>(executed_) + device_.moments() + promises_;
    }
    /// When this rank was done with the stage.
    [[nodiscard]] Tick finished_at() const { return host_; }
    /// Of the last stage that was run.
    [[nodiscard]] StageResult result() const;
    [[nodiscard]] StageTimeline take_timeline();
    [[nodiscard]] const memory::PinnedStats& pinned() const { return pinned_.stats(); }
    /// Why there was no memory; nothing if there was, or if the simulation was only to stop above some size.
    [[nodiscard]] const std::optional<Shortage>& shortage() const { return shortage_; }

private:
    /// Lets the allocator ask virtual time whether an event is complete.
    class Events final : public memory::StreamEvents {
    public:
        explicit Events(RankSimulator& rank) : rank_(rank) {}
        memory::EventHandle record(memory::Stream stream) override;
        bool completed(memory::EventHandle event) override;
        void wait_all() override;
        std::optional<memory::CaptureMark> mark(memory::Stream stream) override;
        bool is_behind(memory::Stream stream, memory::CaptureMark mark) override;
        [[nodiscard]] std::int64_t outstanding() const { return outstanding_; }

    private:
        RankSimulator& rank_;
        std::int64_t outstanding_ = 0;
    };

    RankState run_as_far_as_possible();
    void promise();
    bool execute(const program::Operation& operation);
    bool device_is_full(const program::Operation& operation);
    bool allocate(const program::Operation& operation);
    bool launch(const program::Operation& operation);
    bool await_launch_queue(program::Stream stream, std::size_t launches);
    void submit(const program::Operation& operation, program::Stream stream, std::uint64_t tag);
    bool begin_graph();
    void end_graph();
    bool launch_graph(const program::Operation& operation);
    void replay(const program::Instance& instance, const program::Operation& node, program::Stream launched_on,
                std::uint64_t tag);
    void submit_kernel_node(const program::Operation& node, program::Stream stream, std::uint64_t tag);
    void submit_copy_node(const program::Operation& node, program::Stream stream, std::uint64_t tag);
    [[nodiscard]] Tick launch_cost(const program::Graph& graph) const;
    void stream_wait(const program::Operation& operation);
    void record_event(const program::Operation& operation);
    void wait_event(const program::Operation& operation);
    bool acquire_pinned(const program::Operation& operation);
    bool synchronise(const program::Operation& operation);
    bool wait_for_device();
    bool give_cache_back();
    void begin_next_step();
    bool finish_stage();
    void check_only_persistent_left();
    void sample_memory();
    [[nodiscard]] std::int64_t device_calls() const;
    /// Those since there were `before`.
    void charge_device_calls(std::int64_t before);
    void await_copy_engine();
    void free_slot(const program::Operation& operation);

    [[nodiscard]] std::uint32_t frame_of(program::Scope scope) const;
    [[nodiscard]] std::uint32_t slot_of(const program::Operation& operation) const;
    [[nodiscard]] std::uint32_t event_of(const program::Instance& instance, const program::Operation& operation) const;
    [[nodiscard]] const program::Instance& instance() const { return (*sequence_)[instance_]; }
    [[nodiscard]] memory::Stream memory_stream(program::Stream stream) const;
    [[nodiscard]] Tick launch_cost(const program::Operation& operation) const;

    const program::StepProgram& program_;
    const types::Node& node_;
    SimulationOptions options_;
    Channels channels_;
    VirtualDevice device_;
    memory::VirtualDeviceMemory device_memory_;
    Events events_;
    memory::CachingAllocator allocator_;
    memory::GraphRegistry graphs_;
    memory::PinnedPool pinned_;
    std::vector<std::uint32_t> slots_;           ///< block or pinned handle of each slot, plus one; 0 is none
    std::vector<std::uint64_t> program_events_;  ///< the last recording of each event, plus one; 0 is none

    const std::vector<program::Instance>* sequence_ = nullptr;
    RunStage stage_ = RunStage::setup;
    int steps_left_ = 0;               ///< behind the one that is issued
    std::int64_t kept_by_graphs_ = 0;  ///< slots
    std::size_t instance_ = 0;
    std::size_t operation_ = 0;
    Tick host_ = 0;
    Tick stage_begin_ = 0;
    std::int64_t executed_ = 0;
    bool out_of_memory_ = false;
    std::optional<Shortage> shortage_;
    CaptureOrder capture_order_;
    bool capturing_ = false;  ///< a graph is being captured: nothing is launched
    Bytes executable_graphs_{};
    std::int64_t graph_launches_ = 0;
    Tick copy_turn_ = 0;       ///< when an allocation last had its turn between copies to the host
    bool host_waits_ = false;  ///< for the device: it issues nothing before that has got somewhere
    Tick promised_ = 0;
    std::uint64_t promises_ = 0;
    std::int64_t device_calls_before_ = 0;
    std::int64_t retries_before_ = 0;
    Bytes pinned_peak_{};
    std::vector<FinishedWork> finished_;
    std::vector<program::MemorySample> samples_;
};

}  // namespace stowage::simulator
