#include "planner/simulator/unshared_rank.hpp"

#include <algorithm>

#include "planner/simulator/launch_cost.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::simulator {
namespace {

using program::OperationKind;

bool has_lane(Stream stream) {
    switch (stream) {
        case Stream::main:
        case Stream::communication:
        case Stream::gradient_communication:
        case Stream::send_forward:
        case Stream::receive_forward:
        case Stream::send_backward:
        case Stream::receive_backward: return true;
        default: return false;
    }
}

/// Whether the operation neither shares the device with another nor is anything but itself.
bool is_plain(const program::Operation& operation) {
    switch (operation.kind) {
        case OperationKind::compute:
            return operation.stream == Stream::main && operation.duration.count() <= kLongestWork;
        case OperationKind::collective:
        case OperationKind::peer_transfer:
            return has_lane(operation.stream) && operation.duration.count() <= kLongestWork;
        case OperationKind::stream_wait: return has_lane(operation.stream) && has_lane(operation.other);
        case OperationKind::event_record:
        case OperationKind::event_wait:
        case OperationKind::stream_sync: return has_lane(operation.stream);
        case OperationKind::device_sync:
        case OperationKind::allocate:
        case OperationKind::free: return true;
        default: return false;
    }
}

}  // namespace

bool UnsharedRank::handles(const program::StepProgram& program, const types::Node& node,
                           const SimulationOptions& options) {
    if (options.alone) return false;                         // transfers have no channel
    if (options.allocator.collects_garbage()) return false;  // which goes by how often the allocator was asked
    if (options.trace || node.host.launch_queue_depth > static_cast<std::int64_t>(UnsharedStreams::kHistory))
        return false;
    return MemoryWalk::handles(program) &&
           std::all_of(program.bodies.begin(), program.bodies.end(), [](const program::Body& body) {
               return std::all_of(body.operations.begin(), body.operations.end(), is_plain);
           });
}

UnsharedRank::UnsharedRank(const program::StepProgram& program, const types::Node& node,
                           const SimulationOptions& options, const Channels& channels)
    : program_(program),
      node_(node),
      channels_(channels),
      memory_(program, node, options),
      program_events_(program.event_count(), 0) {
    for (const program::Body& body : program.bodies) {
        std::vector<Operation>& operations = bodies_.emplace_back();
        for (std::uint32_t number = 0; number < body.operations.size(); ++number)
            if (const OperationKind kind = body.operations[number].kind;
                kind != OperationKind::allocate && kind != OperationKind::free)
                operations.push_back(prepared(body.operations[number], number));
    }
}

UnsharedRank::Operation UnsharedRank::prepared(const program::Operation& operation, std::uint32_t number) const {
    const types::HostCosts& host = node_.host;
    Operation made;
    switch (operation.kind) {
        case OperationKind::event_record:
        case OperationKind::event_wait: made.cost = host.event_call.count(); break;
        case OperationKind::stream_wait: made.cost = 2 * host.event_call.count(); break;
        case OperationKind::stream_sync:
        case OperationKind::device_sync: made.cost = host.synchronize.count(); break;
        default: made.cost = launch_cost(host, operation); break;
    }
    made.length = operation.duration.count();
    made.event = operation.slot;
    made.number = number;
    made.kind = operation.kind;
    made.stream = operation.stream;
    made.other = operation.other;
    made.scope = operation.scope;
    made.transfer = operation.transfer;
    made.launches = operation.launches;
    return made;
}

void UnsharedRank::begin(RunStage stage, Tick time) {
    STOWAGE_CHECK(time >= host_, "a stage begins after the one before");
    sequence_ = &program_.instances(stage);
    next_device_call_ = 0;
    instance_ = 0;
    operation_ = 0;
    executed_ = 0;
    host_ = time;
    stage_begin_ = time;
    synchronised_ = time;
    streams_.begin(time);
    std::fill(program_events_.begin(), program_events_.end(), 0);
}

RankState UnsharedRank::run() {
    if (full_) return RankState::out_of_memory;
    streams_.resolve();
    for (; instance_ < sequence_->size(); ++instance_)
        if (!run_instance((*sequence_)[instance_])) return RankState::needs_neighbour;
    return finish_stage() ? RankState::done : RankState::needs_neighbour;
}

bool UnsharedRank::run_instance(const program::Instance& instance) {
    const std::vector<Operation>& operations = bodies_[program::index(instance.body)];
    const std::vector<MemoryWalk::DeviceCall>& calls = memory_.device_calls();
    const bool pays = next_device_call_ < calls.size() && calls[next_device_call_].instance == instance_;
    for (; operation_ < operations.size(); ++operation_) {
        const Operation& operation = operations[operation_];
        if (pays) pay_device_calls(operation.number);
        if (!execute(instance, operation)) return false;
    }
    const std::size_t all = program_.bodies[program::index(instance.body)].operations.size();
    if (pays) pay_device_calls(static_cast<std::uint32_t>(all));
    executed_ += static_cast<std::int64_t>(all);
    operation_ = 0;
    return true;
}

/// The host's calls for memory in this instance in front of an operation.
void UnsharedRank::pay_device_calls(std::uint32_t before) {
    const std::vector<MemoryWalk::DeviceCall>& calls = memory_.device_calls();
    for (; next_device_call_ < calls.size(); ++next_device_call_) {
        const MemoryWalk::DeviceCall& call = calls[next_device_call_];
        if (call.instance != instance_ || call.operation >= before) return;
        host_ += call.cost;
    }
}

/// Result: false if a neighbour has to move first; the operation has then had no effect and is tried again.
bool UnsharedRank::execute(const program::Instance& instance, const Operation& operation) {
    switch (operation.kind) {
        case OperationKind::compute:
        case OperationKind::collective:
        case OperationKind::peer_transfer:
            if (!launch_queue_has_room(operation.stream, operation.launches)) return false;
            launch(operation);
            return true;
        case OperationKind::event_record:
            host_ += operation.cost;
            program_events_[event_of(instance, operation)] =
                static_cast<std::uint64_t>(streams_.record(operation.stream, host_)) + 1;
            return true;
        case OperationKind::event_wait: {
            host_ += operation.cost;
            const std::uint64_t event = program_events_[event_of(instance, operation)];
            STOWAGE_CHECK(event != 0, "a wait for an event that was not recorded in this step");
            streams_.wait(operation.stream, static_cast<EventId>(event - 1), host_);
            return true;
        }
        case OperationKind::stream_wait:
            host_ += operation.cost;
            streams_.join(operation.stream, operation.other, host_);
            return true;
        default: return synchronise(operation);
    }
}

/// A launch queue without room for so many holds the host until the work ends that makes room.
bool UnsharedRank::launch_queue_has_room(Stream stream, std::uint16_t launches) {
    const auto depth = static_cast<std::uint64_t>(node_.host.launch_queue_depth);
    const std::uint64_t issued = streams_.issued(stream);
    if (issued + launches <= depth || issued == 0) return true;
    const std::uint64_t makes_room = std::min(issued + launches - depth, issued) - 1;
    if (streams_.known(stream) <= makes_room) streams_.resolve();
    if (streams_.known(stream) <= makes_room) return false;
    host_ = std::max(host_, streams_.end_of(stream, makes_room));
    return true;
}

void UnsharedRank::launch(const Operation& operation) {
    host_ += operation.cost;
    if (operation.kind != OperationKind::peer_transfer)
        return streams_.work(operation.stream, operation.length, host_, operation.launches);
    PeerChannel* const channel = channels_[program::index(operation.transfer)];
    STOWAGE_CHECK(channel != nullptr, "a transfer with a rank that is not there");
    streams_.transfer(operation.stream, *channel, program::sends(operation.transfer) ? 0 : 1, operation.length, host_);
}

std::uint32_t UnsharedRank::event_of(const program::Instance& instance, const Operation& operation) const {
    const std::uint32_t frame = program_.scope_frames[instance.frames_begin + operation.scope];
    return program_.frame_events[frame] + operation.event;
}

bool UnsharedRank::synchronise(const Operation& operation) {
    const bool all = operation.kind == OperationKind::device_sync;
    const auto known = [&] { return all ? streams_.resolved() : streams_.resolved(operation.stream); };
    if (!known()) streams_.resolve();
    if (!known()) return false;
    synchronised_ = host_;
    host_ = std::max(host_, all ? streams_.done() : streams_.done(operation.stream)) + operation.cost;
    return true;
}

bool UnsharedRank::finish_stage() {
    streams_.resolve();
    if (!streams_.resolved()) return false;
    check_moment(host_);
    const Tick end = std::max(streams_.done(), synchronised_);
    host_ = std::max(host_, end);
    host_bound_ = streams_.host_bound(end);
    return true;
}

StageResult UnsharedRank::result() const {
    StageResult result;
    memory_.report(result);
    result.duration = types::Nanoseconds{host_ - stage_begin_};
    result.host_bound = types::Nanoseconds{host_bound_};
    for (std::size_t i = 0; i < result.busy.size(); ++i)
        result.busy[i] = types::Nanoseconds{streams_.busy(static_cast<Stream>(i))};
    result.operations = executed_;
    return result;
}

}  // namespace stowage::simulator
