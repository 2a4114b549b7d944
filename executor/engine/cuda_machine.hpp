#pragma once

// The interpreter's machine on a real device: one CUDA stream for each stream of the program, and a second set for
// captures, so that what a graph forks off never touches the streams that eager work runs on.
//
// A graph is captured on the stream `capture`; the streams that join it are joined back before it ends, whether or not
// the program does. In the spinning mode kernels that wait a pseudo-random time stand before every copy and event, so
// that an order that holds by luck does not.
//
// Tested by: tests/executor/engine/execution_gpu_test.cpp.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/event.hpp"
#include "executor/cuda/graph.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "executor/engine/execution.hpp"
#include "executor/engine/machine.hpp"
#include "executor/workload/workload.hpp"

namespace stowage::executor {

class CudaMachine final : public Machine {
public:
    /// Keeps a reference to the workload. `poison_freed`: what is freed on the main stream is next given out there.
    CudaMachine(Workload& workload, const DebugModes& debug, bool poison_freed);
    CudaMachine(const CudaMachine&) = delete;
    CudaMachine& operator=(const CudaMachine&) = delete;
    CudaMachine(CudaMachine&&) = delete;
    CudaMachine& operator=(CudaMachine&&) = delete;
    ~CudaMachine() override;

    void compute(const program::Work& work, std::span<const Address> buffers, program::Stream stream,
                 Place place) override;
    void copy(program::Direction direction, Address from, Address to, Bytes bytes, program::Stream stream) override;
    void delay(Nanoseconds duration, program::Stream stream) override;
    void read_by_host(Bytes bytes, program::Stream stream) override;
    void record(std::uint32_t event, program::Stream stream, bool external) override;
    void wait(std::uint32_t event, program::Stream stream) override;
    void wait_stream(program::Stream stream, program::Stream other) override;
    void synchronise(program::Stream stream) override;
    void synchronise_all() override;
    void begin_capture(std::uint32_t graph) override;
    CapturedNodes end_capture() override;
    void launch_graph(std::uint32_t graph, program::Stream stream) override;
    void join_streams() override;
    void allocated(Address address, Bytes bytes, program::Stream stream) override;
    void freed(Address address, Bytes bytes, bool used_elsewhere) override;
    void attribute(OperationId id, bool captured) override;

    /// Eager streams by number, for the allocator's events.
    [[nodiscard]] std::vector<StreamRef> streams() const;
    [[nodiscard]] StreamRef main() const { return stream_of(program::Stream::main); }
    /// Told of every operation before it is issued; nothing by default.
    void on_operation(std::function<void(OperationId, bool)> call) { on_operation_ = std::move(call); }

    /// From now on the host's time in each kind of call is added up, or no longer.
    void count_host_time(bool counted) { counted_ = counted; }
    [[nodiscard]] std::vector<recording::HostCall> host_calls() const;

    [[nodiscard]] std::int64_t graphs() const { return static_cast<std::int64_t>(graphs_.size()); }
    [[nodiscard]] std::int64_t graph_nodes() const { return graph_nodes_; }
    [[nodiscard]] std::int64_t graph_launches() const { return launches_; }
    void reset_launches() { launches_ = 0; }
    /// Bytes written beside a buffer so far, in the mode with fences. Waits for the device.
    [[nodiscard]] std::uint64_t broken_fence_bytes() const;

private:
    [[nodiscard]] StreamRef stream_of(program::Stream stream) const;
    [[nodiscard]] StreamRef joined(program::Stream stream);
    void spin(program::Stream stream);
    void fences(Address address, Bytes bytes, bool check, program::Stream stream);
    struct Debugging;
    class HostTime;

    Workload& workload_;
    DebugModes debug_;
    bool poison_freed_;
    std::array<Stream, program::kStreamCount> eager_;
    std::array<Stream, program::kStreamCount> captured_;
    std::array<bool, program::kStreamCount> taking_part_{};  ///< in the capture under way
    std::array<Event, program::kStreamCount> tails_;         ///< for waits of one stream for another
    std::array<Event, program::kStreamCount> captured_tails_;
    std::map<std::uint32_t, Event> events_;
    std::map<std::uint32_t, Event> captured_events_;
    std::map<std::uint32_t, bool> external_;
    std::optional<Capture> capture_;
    std::uint32_t capturing_ = 0;
    std::map<std::uint32_t, GraphExec> graphs_;
    std::int64_t graph_nodes_ = 0;
    std::int64_t launches_ = 0;
    DeviceBuffer read_from_;  ///< what the host reads, and where to
    PinnedBuffer read_to_;
    std::vector<void*> pointers_;
    std::function<void(OperationId, bool)> on_operation_;
    std::uint64_t spins_ = 0;
    bool counted_ = false;
    std::map<std::string, recording::HostCall> host_calls_;
    std::unique_ptr<Debugging> debugging_;
};

}  // namespace stowage::executor
