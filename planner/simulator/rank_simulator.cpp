#include "planner/simulator/rank_simulator.hpp"

#include <algorithm>
#include <utility>

#include "planner/simulator/launch_cost.hpp"
#include "planner/simulator/work_tag.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::simulator {
namespace {

using program::Operation;

Tick ticks(types::Nanoseconds time) { return time.count(); }

Stream capture_stream(Stream stream) { return stream == Stream::main ? Stream::capture : stream; }

}  // namespace

// ------------------------------------------------------------------------------------------------- the allocator's
// events

memory::EventHandle RankSimulator::Events::record(memory::Stream stream) {
    ++outstanding_;
    return static_cast<memory::EventHandle>(rank_.device_.record(static_cast<Stream>(stream), rank_.host_));
}

bool RankSimulator::Events::completed(memory::EventHandle event) {
    const bool done = rank_.device_.completed(static_cast<EventId>(event));
    if (done) --outstanding_;
    return done;
}

std::optional<memory::CaptureMark> RankSimulator::Events::mark(memory::Stream stream) {
    return rank_.capture_order_.mark(static_cast<Stream>(stream));
}

bool RankSimulator::Events::is_behind(memory::Stream stream, memory::CaptureMark mark) {
    return rank_.capture_order_.is_behind(static_cast<Stream>(stream), mark);
}

void RankSimulator::Events::wait_all() {
    STOWAGE_CHECK(rank_.device_.drain_all(), "the allocator synchronised while a neighbour was awaited");
    rank_.host_ = std::max(rank_.host_, rank_.device_.now());
}

// ---------------------------------------------------------------------------------------------------------------
// stages

RankSimulator::RankSimulator(const program::StepProgram& program, const types::Node& node,
                             const SimulationOptions& options, const Channels& channels)
    : program_(program),
      node_(node),
      options_(options),
      channels_(channels),
      device_(node.copy, options.interference),
      device_memory_(options.device_memory ? memory::VirtualDeviceMemory(*options.device_memory)
                                           : memory::VirtualDeviceMemory()),
      events_(*this),
      allocator_(options.allocator, device_memory_, events_),
      pinned_({}, &events_),
      slots_(program.slot_count(), 0),
      program_events_(program.event_count(), 0) {}

void RankSimulator::begin(RunStage stage, Tick time, int steps) {
    STOWAGE_CHECK(time >= host_, "a stage begins after the one before");
    stage_ = stage;
    steps_left_ = steps - 1;
    sequence_ = &program_.instances(stage);
    instance_ = 0;
    operation_ = 0;
    executed_ = 0;
    graph_launches_ = 0;
    host_ = time;
    stage_begin_ = time;
    device_.advance_to(time);
    device_.forget_events();
    device_.reset_counters();
    std::fill(program_events_.begin(), program_events_.end(), 0);
    allocator_.reset_peaks();
    device_calls_before_ = allocator_.stats().device_allocations;
    retries_before_ = allocator_.stats().retries;
    pinned_peak_ = pinned_.stats().reserved;
    finished_.clear();
    samples_.clear();
    device_.trace_into(options_.trace ? &finished_ : nullptr);
}

RankState RankSimulator::run() {
    const RankState state = run_as_far_as_possible();
    if (state == RankState::needs_neighbour) promise();
    return state;
}

/// Tells the neighbours before when they need not expect a transfer. The host issues nothing before its own time; while
/// it waits for the device, nothing before the device changes.
void RankSimulator::promise() {
    const Tick change = device_.earliest_change();
    const Tick time = std::max(device_.now(), host_waits_ ? change : std::min(change, host_));
    if (time > promised_) ++promises_;
    promised_ = std::max(promised_, time);
    for (std::size_t kind = 0; kind < channels_.size(); ++kind)
        if (channels_[kind] != nullptr)
            channels_[kind]->promise(program::sends(static_cast<program::TransferKind>(kind)) ? 0 : 1, promised_);
}

RankState RankSimulator::run_as_far_as_possible() {
    while (instance_ < sequence_->size()) {
        const auto& operations = program_.bodies[program::index((*sequence_)[instance_].body)].operations;
        for (; operation_ < operations.size(); ++operation_, ++executed_)
            if (!execute(operations[operation_]))
                return out_of_memory_ ? RankState::out_of_memory : RankState::needs_neighbour;
        ++instance_;
        operation_ = 0;
        if (instance_ == sequence_->size() && steps_left_ > 0) begin_next_step();
    }
    return finish_stage() ? RankState::done : RankState::needs_neighbour;
}

/// In a row of steps, behind what the device still has of the one before.
void RankSimulator::begin_next_step() {
    check_only_persistent_left();
    std::fill(program_events_.begin(), program_events_.end(), 0);
    --steps_left_;
    instance_ = 0;
}

/// Result: false if a neighbour has to move first.
bool RankSimulator::wait_for_device() {
    host_waits_ = true;
    if (!device_.drain_all()) return false;
    host_waits_ = false;
    host_ = std::max(host_, device_.now());
    return true;
}

bool RankSimulator::finish_stage() {
    if (!wait_for_device()) return false;
    check_only_persistent_left();
    const DeviceCounters& counters = device_.counters();
    for (std::size_t direction = 0; direction < 2; ++direction)
        STOWAGE_CHECK(counters.copy_busy[direction] >= counters.copy_alone[direction], "an engine ran over its rate");
    return true;
}

/// Of what lies in the layers' frames only what graphs were left holding may outlive a stage.
void RankSimulator::check_only_persistent_left() {
    const auto end = slots_.begin() + program_.frame_slots[program_.persistent_frames];
    const auto left = static_cast<std::int64_t>(end - slots_.begin()) - std::count(slots_.begin(), end, 0U);
    if (stage_ == RunStage::capture) kept_by_graphs_ = left;
    STOWAGE_CHECK(left == kept_by_graphs_, "a step leaves memory allocated that does not persist");
}

StageResult RankSimulator::result() const {
    const DeviceCounters& counters = device_.counters();
    StageResult result;
    result.duration = types::Nanoseconds{host_ - stage_begin_};
    result.peak_allocated = allocator_.stats().peak_allocated;
    result.peak_reserved = allocator_.stats().peak_reserved;
    result.allocated_after = allocator_.stats().allocated;
    result.pinned_peak = pinned_peak_;
    result.exposed_copy = types::Nanoseconds{counters.exposed_copy};
    result.host_bound = types::Nanoseconds{counters.host_bound};
    for (std::size_t i = 0; i < counters.busy.size(); ++i) result.busy[i] = types::Nanoseconds{counters.busy[i]};
    for (std::size_t i = 0; i < 2; ++i) {
        result.copy_busy[i] = types::Nanoseconds{counters.copy_busy[i]};
        result.copy_alone[i] = types::Nanoseconds{counters.copy_alone[i]};
        result.copied[i] = Bytes{counters.copied[i]};
    }
    result.operations = executed_;
    result.executable_graphs = executable_graphs_;
    result.graph_launches = graph_launches_;
    if (!program_.graphs.empty())
        result.private_pools =
            allocator_.fragmentation(Bytes{1}, static_cast<memory::Stream>(Stream::main)).reserved_by_private_pools;
    result.cache_flushes = allocator_.stats().retries - retries_before_;
    result.device_allocation_calls = allocator_.stats().device_allocations - device_calls_before_;
    return result;
}

StageTimeline RankSimulator::take_timeline() {
    StageTimeline timeline;
    timeline.memory = std::move(samples_);
    timeline.entries.reserve(finished_.size());
    for (const FinishedWork& work : finished_) {
        program::TimelineEntry entry = entry_of(work.tag);
        if (entry.in_graph()) entry.captured += program_.graphs[(*sequence_)[entry.instance].graph].begin;
        entry.stream = work.stream;
        entry.start = types::SimTime{types::Nanoseconds{work.start - stage_begin_}};
        entry.end = types::SimTime{types::Nanoseconds{work.end - stage_begin_}};
        timeline.entries.push_back(entry);
    }
    return timeline;
}

// -----------------------------------------------------------------------------------------------------------
// operations

std::uint32_t RankSimulator::frame_of(program::Scope scope) const {
    return program_.scope_frames[(*sequence_)[instance_].frames_begin + scope];
}

std::uint32_t RankSimulator::slot_of(const Operation& operation) const {
    return program_.frame_slots[frame_of(operation.scope)] + operation.slot;
}

std::uint32_t RankSimulator::event_of(const program::Instance& instance, const Operation& operation) const {
    const std::uint32_t frame = operation.scope == program::kGraphScope
                                    ? program_.graph_frame
                                    : program_.scope_frames[instance.frames_begin + operation.scope];
    return program_.frame_events[frame] + operation.slot;
}

/// Graphs are captured on a stream of their own, which owns the memory that their main stream takes.
memory::Stream RankSimulator::memory_stream(Stream stream) const {
    return static_cast<memory::Stream>(capturing_ ? capture_stream(stream) : stream);
}

/// Result: false if a neighbour has to move first (the operation has then had no effect and is tried again), or out of
/// memory.
bool RankSimulator::execute(const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::compute:
        case OperationKind::copy:
        case OperationKind::collective:
        case OperationKind::peer_transfer: return launch(operation);
        case OperationKind::allocate: return allocate(operation);
        case OperationKind::free: free_slot(operation); return true;
        case OperationKind::record_stream:
            allocator_.record_stream(static_cast<memory::BlockHandle>(slots_[slot_of(operation)] - 1),
                                     memory_stream(operation.stream));
            return true;
        case OperationKind::event_record: record_event(operation); return true;
        case OperationKind::event_wait: wait_event(operation); return true;
        case OperationKind::stream_wait: stream_wait(operation); return true;
        case OperationKind::pinned_acquire: return acquire_pinned(operation);
        case OperationKind::pinned_release: {
            std::uint32_t& slot = slots_[slot_of(operation)];
            STOWAGE_CHECK(slot != 0, "pinned memory released twice");
            const auto buffer = static_cast<memory::PinnedHandle>(slot - 1);
            if (!capturing_) pinned_.record_stream(buffer, static_cast<memory::Stream>(operation.stream));
            pinned_.release(buffer);
            slot = 0;
            return true;
        }
        case OperationKind::stream_sync:
        case OperationKind::device_sync: return synchronise(operation);
        case OperationKind::graph_begin: return begin_graph();
        case OperationKind::graph_end: end_graph(); return true;
        case OperationKind::graph_launch: return launch_graph(operation);
        case OperationKind::empty_cache: return give_cache_back();
    }
    return true;
}

Tick RankSimulator::launch_cost(const Operation& operation) const {
    return simulator::launch_cost(node_.host, operation);
}

/// A launch queue without room for so many holds the host until the device has taken something from it. Result: false
/// if a neighbour has to move first.
bool RankSimulator::await_launch_queue(Stream stream, std::size_t launches) {
    const auto full = [&] {
        const std::size_t taken = device_.launches(stream);
        return taken > 0 && taken + launches > static_cast<std::size_t>(node_.host.launch_queue_depth);
    };
    if (full() && !device_.advance_to(host_)) return false;
    while (full()) {
        host_waits_ = true;
        const bool free_to_go_on = device_.advance_one();
        host_ = std::max(host_, device_.now());
        if (!free_to_go_on && full()) return false;
    }
    host_waits_ = false;
    return true;
}

bool RankSimulator::launch(const Operation& operation) {
    if (!capturing_ && !await_launch_queue(operation.stream, operation.launches)) return false;
    host_ += launch_cost(operation);
    if (capturing_)
        capture_order_.work(capture_stream(operation.stream));
    else
        submit(operation, operation.stream, work_tag(instance_, operation_));
    return true;
}

void RankSimulator::submit(const Operation& operation, Stream stream, std::uint64_t tag) {
    const Tick length = ticks(operation.duration);
    switch (operation.kind) {
        case OperationKind::compute:
            device_.compute(stream, operation.kernel_class, length, host_, tag, operation.launches);
            break;
        case OperationKind::copy:
            device_.copy(stream, operation.direction, operation.bytes.count, length, host_, tag);
            break;
        case OperationKind::peer_transfer: {
            if (options_.alone) return device_.communicate(stream, length, host_, tag);
            PeerChannel* channel = channels_[program::index(operation.transfer)];
            STOWAGE_CHECK(channel != nullptr, "a transfer with a rank that is not there");
            device_.transfer(stream, *channel, program::sends(operation.transfer) ? 0 : 1, length, host_, tag);
            break;
        }
        default: device_.communicate(stream, length, host_, tag); break;
    }
}

/// Whether the allocator would find neither a cached block nor room for a segment.
bool RankSimulator::device_is_full(const Operation& operation) {
    if (!options_.device_memory) return false;
    const Bytes growth = allocator_.growth(operation.bytes, memory_stream(operation.stream));
    return !device_memory_.has_room(growth) && !allocator_.has_block(operation.bytes, memory_stream(operation.stream));
}

bool RankSimulator::allocate(const Operation& operation) {
    // Only an allocator that holds blocks for other streams looks at the clock.
    if (events_.outstanding() > 0 && !device_.advance_to(host_)) return false;
    // It would wait for the device, which may wait for a neighbour: before anything has changed, not in the middle. A
    // wait once begun goes on, though blocks have come free by now: the device is ahead of the host.
    if ((host_waits_ || device_is_full(operation)) && !wait_for_device()) return false;
    std::uint32_t& slot = slots_[slot_of(operation)];
    STOWAGE_CHECK(slot == 0, "a slot is allocated twice");
    const std::int64_t before = device_calls();
    const auto block = allocator_.allocate(operation.bytes, memory_stream(operation.stream));
    if (!block)
        shortage_ = Shortage{stage_, allocator_.fragmentation(operation.bytes, memory_stream(operation.stream))};
    if (!block || (options_.stop_above_allocated && allocator_.stats().allocated > *options_.stop_above_allocated)) {
        out_of_memory_ = true;
        return false;
    }
    slot = static_cast<std::uint32_t>(*block) + 1;
    charge_device_calls(before);
    if (options_.trace) sample_memory();
    return true;
}

/// Calls that took memory from the device or gave some back.
std::int64_t RankSimulator::device_calls() const {
    return allocator_.stats().device_allocations + allocator_.stats().device_frees;
}

void RankSimulator::charge_device_calls(std::int64_t before) {
    for (std::int64_t call = before; call < device_calls(); ++call) {
        host_ += ticks(node_.host.device_allocation_call);
        await_copy_engine();
    }
}

/// cudaMalloc has work of its own for the engine that copies to the host, and gets it when a stream's turn there is
/// over: when that has no copy ready, or at the end of its time slice. The slice after that one begins then.
/// Source: docs/measurements/2026-11-30-copies-and-allocations.md. Where a neighbour has to move first the rest of the
/// wait is left out.
void RankSimulator::await_copy_engine() {
    const Tick slice = ticks(node_.copy.time_slice);
    if (slice == 0 || device_.pending(Stream::d2h) == 0 || !device_.advance_to(host_)) return;
    if (!device_.copies(Direction::device_to_host)) return;
    const Tick begin = std::max(copy_turn_, device_.copies_since(Direction::device_to_host));
    const Tick end = begin + (host_ - begin + slice) / slice * slice;
    host_waits_ = true;
    while (device_.copies(Direction::device_to_host) && host_ < end) {
        const bool free_to_go_on = device_.earliest_change() < end ? device_.advance_one() : device_.advance_to(end);
        host_ = std::max(host_, device_.now());
        if (!free_to_go_on) break;
    }
    host_waits_ = false;
    copy_turn_ = host_;
}

void RankSimulator::free_slot(const Operation& operation) {
    std::uint32_t& slot = slots_[slot_of(operation)];
    STOWAGE_CHECK(slot != 0, "a slot is freed that holds nothing");
    allocator_.free(static_cast<memory::BlockHandle>(slot - 1));
    slot = 0;
    if (options_.trace) sample_memory();
}

void RankSimulator::sample_memory() {
    const memory::AllocatorStats& stats = allocator_.stats();
    const types::SimTime time{types::Nanoseconds{host_ - stage_begin_}};
    if (!samples_.empty() && samples_.back().time == time) samples_.pop_back();
    samples_.push_back({time, stats.allocated, stats.reserved, pinned_.stats().in_use});
}

void RankSimulator::record_event(const Operation& operation) {
    host_ += ticks(node_.host.event_call);
    if (capturing_) return capture_order_.record(event_of(instance(), operation), capture_stream(operation.stream));
    program_events_[event_of(instance(), operation)] =
        static_cast<std::uint64_t>(device_.record(operation.stream, host_)) + 1;
}

void RankSimulator::wait_event(const Operation& operation) {
    host_ += ticks(node_.host.event_call);
    if (capturing_) return capture_order_.wait_event(capture_stream(operation.stream), event_of(instance(), operation));
    const std::uint64_t event = program_events_[event_of(instance(), operation)];
    STOWAGE_CHECK(event != 0, "a wait for an event that was not recorded in this step");
    device_.wait(operation.stream, static_cast<EventId>(event - 1), host_);
}

void RankSimulator::stream_wait(const Operation& operation) {
    host_ += 2 * ticks(node_.host.event_call);
    if (capturing_) return capture_order_.wait(capture_stream(operation.stream), capture_stream(operation.other));
    device_.wait(operation.stream, device_.record(operation.other, host_), host_);
}

bool RankSimulator::acquire_pinned(const Operation& operation) {
    // Blocks that copies still use are looked at.
    if (pinned_.holds_blocks() && !device_.advance_to(host_)) return false;
    const Bytes before = pinned_.stats().reserved;
    const auto key = static_cast<memory::PinnedKey>(program_.pinned_keys[operation.detail]);
    const auto buffer = pinned_.acquire(key, operation.bytes, operation.detail != 0);
    slots_[slot_of(operation)] = static_cast<std::uint32_t>(buffer) + 1;
    const Bytes grown = pinned_.stats().reserved - before;
    pinned_peak_ = std::max(pinned_peak_, pinned_.stats().reserved);
    host_ += static_cast<Tick>(types::in_gib(grown) * static_cast<double>(ticks(node_.host.pinned_allocation_per_gib)));
    if (!capturing_) pinned_.record_stream(buffer, static_cast<memory::Stream>(Stream::d2h));
    return true;
}

bool RankSimulator::synchronise(const Operation& operation) {
    STOWAGE_CHECK(!capturing_, "the host waits for the device inside a capture");
    const bool all = operation.kind == OperationKind::device_sync;
    if (!device_.advance_to(host_)) return false;
    host_waits_ = true;
    if (!(all ? device_.drain_all() : device_.drain(operation.stream))) return false;
    host_waits_ = false;
    host_ = std::max(host_, device_.now()) + ticks(node_.host.synchronize);
    return true;
}

}  // namespace stowage::simulator
