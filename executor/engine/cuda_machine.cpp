#include "executor/engine/cuda_machine.hpp"

#include <algorithm>
#include <chrono>

#include "executor/cuda/check.hpp"
#include "executor/cuda/device_arena.hpp"
#include "executor/engine/fenced_memory.hpp"
#include "executor/workload/kernels/debug.hpp"
#include "executor/workload/random.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
/// What debugging modes keep on the device.
struct CudaMachine::Debugging {
    DeviceBuffer report{Bytes{static_cast<std::int64_t>(sizeof(kernels::FenceReport))}};
    [[nodiscard]] kernels::FenceReport* fences() const {
        return reinterpret_cast<kernels::FenceReport*>(report.data());
    }
};

/// Adds the time that it lives to the calls of a name, where that is asked for.
class CudaMachine::HostTime {
public:
    HostTime(CudaMachine& machine, std::string_view name) : machine_(machine), name_(name) {
        if (machine_.counted_) start_ = std::chrono::steady_clock::now();
    }
    HostTime(const HostTime&) = delete;
    HostTime& operator=(const HostTime&) = delete;
    HostTime(HostTime&&) = delete;
    HostTime& operator=(HostTime&&) = delete;
    ~HostTime() {
        if (!machine_.counted_) return;
        recording::HostCall& call = machine_.host_calls_[std::string(name_)];
        call.name = name_;
        ++call.calls;
        call.time += std::chrono::duration_cast<Nanoseconds>(std::chrono::steady_clock::now() - start_);
    }

private:
    CudaMachine& machine_;
    std::string_view name_;
    std::chrono::steady_clock::time_point start_;
};

std::vector<recording::HostCall> CudaMachine::host_calls() const {
    std::vector<recording::HostCall> calls;
    for (const auto& [name, call] : host_calls_) calls.push_back(call);
    return calls;
}

CudaMachine::CudaMachine(Workload& workload, const DebugModes& debug, bool poison_freed)
    : workload_(workload), debug_(debug), poison_freed_(poison_freed) {
    if (!debug.fences) return;
    debugging_ = std::make_unique<Debugging>();
    kernels::clear_fence_report(debugging_->fences(), main().get());
}

CudaMachine::~CudaMachine() = default;

StreamRef CudaMachine::stream_of(program::Stream stream) const {
    return (capture_ ? captured_ : eager_)[program::index(stream)].ref();
}

/// The stream, which becomes part of the capture under way if there is one.
StreamRef CudaMachine::joined(program::Stream stream) {
    if (capture_ && !taking_part_[program::index(stream)]) {
        const Event& fork = captured_tails_[program::index(program::Stream::capture)];
        fork.record(stream_of(program::Stream::main));
        fork.make_wait(stream_of(stream));
        taking_part_[program::index(stream)] = true;
    }
    return stream_of(stream);
}

// ---------------------------------------------------------------------------------------------------------------- work

void CudaMachine::compute(const program::Work& work, std::span<const Address> buffers, program::Stream stream,
                          Place place) {
    const HostTime time(*this, layers::name_of(work.call));
    pointers_.clear();
    for (const Address address : buffers) pointers_.push_back(pointer(address));
    workload_.launch(work.call, work.sizes, pointers_, joined(stream).get(),
                     {std::max<std::int64_t>(place.microbatch, 0), place.layer});
}

void CudaMachine::copy(program::Direction direction, Address from, Address to, Bytes bytes, program::Stream stream) {
    const HostTime time(*this, "transfer");
    const bool out = direction == program::Direction::device_to_host;
    const StreamRef on = joined(stream);
    spin(stream);
    check(cudaMemcpyAsync(pointer(to), pointer(from), static_cast<std::size_t>(bytes.count),
                          out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, on.get()),
          out ? "copying a saved tensor to the host" : "copying a saved tensor back");
}

void CudaMachine::delay(Nanoseconds duration, program::Stream stream) {
    if (duration.count() > 0) kernels::spin(static_cast<std::uint64_t>(duration.count()), joined(stream).get());
}

/// Room for it is made in the first step, before anything is timed.
void CudaMachine::read_by_host(Bytes bytes, program::Stream stream) {
    const HostTime time(*this, "transfer");
    if (read_to_.size() < bytes) {
        synchronise_all();
        read_to_ = {};
        read_to_ = PinnedBuffer(bytes);
        read_from_ = DeviceBuffer(bytes);
    }
    check(cudaMemcpyAsync(read_to_.data(), read_from_.data(), static_cast<std::size_t>(bytes.count),
                          cudaMemcpyDeviceToHost, joined(stream).get()),
          "copying what the host reads");
}

/// Before copies and events of streams that copy, in the mode that looks for orders that hold by luck.
void CudaMachine::spin(program::Stream stream) {
    if (!debug_.spin_seed) return;
    const std::uint64_t longest = static_cast<std::uint64_t>(debug_.longest_spin_us) * 1000;
    const std::uint64_t number = random_word(*debug_.spin_seed, spins_++);
    kernels::spin(number % (longest + 1), stream_of(stream).get());
}

// -------------------------------------------------------------------------------------------------------------- events

void CudaMachine::record(std::uint32_t event, program::Stream stream, bool external) {
    const HostTime time(*this, "event");
    const StreamRef on = joined(stream);
    if (stream == program::Stream::d2h || stream == program::Stream::h2d) spin(stream);
    if (capture_ && !external) return captured_events_[event].record(on);
    external ? events_[event].record_external(on) : events_[event].record(on);
}

void CudaMachine::wait(std::uint32_t event, program::Stream stream) {
    auto& events = capture_ ? captured_events_ : events_;
    const auto recorded = events.find(event);
    STOWAGE_CHECK(recorded != events.end(), "a wait for an event that was not recorded");
    recorded->second.make_wait(stream_of(stream));
    taking_part_[program::index(stream)] = taking_part_[program::index(stream)] || capture_;
}

void CudaMachine::wait_stream(program::Stream stream, program::Stream other) {
    const HostTime time(*this, "wait of a stream");
    if (capture_ && !taking_part_[program::index(other)]) return;  // it holds nothing of the graph
    const Event& tail = (capture_ ? captured_tails_ : tails_)[program::index(other)];
    tail.record(stream_of(other));
    tail.make_wait(stream_of(stream));
    if (capture_) taking_part_[program::index(stream)] = true;
}

void CudaMachine::synchronise(program::Stream stream) {
    stream_of(stream).synchronize("waiting for a stream of the step");
    if (stream == program::Stream::main) workload_.check_counts();
}

void CudaMachine::synchronise_all() { check(cudaDeviceSynchronize(), "waiting for the step"); }

void CudaMachine::join_streams() {
    for (std::size_t i = 1; i < eager_.size(); ++i) {
        tails_[i].record(eager_[i].ref());
        tails_[i].make_wait(main());
    }
    tails_[0].record(main());
    for (std::size_t i = 1; i < eager_.size(); ++i) tails_[0].make_wait(eager_[i].ref());
}

std::vector<StreamRef> CudaMachine::streams() const {
    std::vector<StreamRef> streams;
    for (const Stream& stream : eager_) streams.push_back(stream.ref());
    return streams;
}

// -------------------------------------------------------------------------------------------------------------- graphs

void CudaMachine::begin_capture(std::uint32_t graph) {
    capturing_ = graph;
    taking_part_.fill(false);
    taking_part_[program::index(program::Stream::main)] = true;
    captured_events_.clear();
    capture_.emplace(captured_[program::index(program::Stream::main)].ref());
}

CapturedNodes CudaMachine::end_capture() {
    for (std::size_t i = 1; i < captured_.size(); ++i) {
        if (!taking_part_[i]) continue;
        captured_tails_[i].record(captured_[i].ref());
        captured_tails_[i].make_wait(captured_[0].ref());
    }
    const Graph graph = capture_->finish();
    capture_.reset();
    captured_events_.clear();
    const GraphNodeCounts counts = graph.count_nodes();
    graph_nodes_ += static_cast<std::int64_t>(counts.total());
    const auto [entry, added] = graphs_.insert_or_assign(capturing_, GraphExec(graph));
    entry->second.upload(main());
    return {static_cast<std::int64_t>(counts.kernels), static_cast<std::int64_t>(counts.memcpys),
            static_cast<std::int64_t>(counts.total() - counts.kernels - counts.memcpys)};
}

void CudaMachine::launch_graph(std::uint32_t graph, program::Stream stream) {
    const HostTime time(*this, "graph launch");
    const auto found = graphs_.find(graph);
    STOWAGE_CHECK(found != graphs_.end(), "a graph is launched that was not captured");
    found->second.launch(stream_of(stream));
    ++launches_;
}

// ----------------------------------------------------------------------------------------------------------- debugging

void CudaMachine::allocated(Address address, Bytes bytes, program::Stream stream) {
    if (debug_.poison) kernels::poison(pointer(address), bytes.count, stream_of(stream).get());
    if (debugging_) fences(address, bytes, false, stream);
}

/// Memory that another stream may still use, or get next, is poisoned only when it is allocated again.
void CudaMachine::freed(Address address, Bytes bytes, bool used_elsewhere) {
    if (debugging_) fences(address, bytes, true, program::Stream::main);
    if (debug_.poison && poison_freed_ && !used_elsewhere) kernels::poison(pointer(address), bytes.count, main().get());
}

void CudaMachine::fences(Address address, Bytes bytes, bool check_them, program::Stream stream) {
    const std::array<Address, 2> places{address - static_cast<Address>(kFence.count),
                                        address + static_cast<Address>(bytes.count)};
    for (const Address place : places) {
        if (check_them)
            kernels::check_fence(pointer(place), kFence.count, debugging_->fences(), stream_of(stream).get());
        else
            kernels::fill_fence(pointer(place), kFence.count, stream_of(stream).get());
    }
}

std::uint64_t CudaMachine::broken_fence_bytes() const {
    if (!debugging_) return 0;
    kernels::FenceReport report;
    check(cudaDeviceSynchronize(), "waiting for the step");
    check(cudaMemcpy(&report, debugging_->fences(), sizeof(report), cudaMemcpyDeviceToHost), "reading the fences");
    return report.broken_bytes;
}

void CudaMachine::attribute(OperationId id, bool captured) {
    if (on_operation_) on_operation_(id, captured);
}

}  // namespace stowage::executor
