#include "planner/memory/planned_buffers.hpp"

#include <algorithm>
#include <optional>

namespace stowage::memory {
namespace {

using program::Instance;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;
using program::Stream;

class Follower {
public:
    Follower(const StepProgram& program, RunStage stage)
        : program_(program),
          capture_(stage == RunStage::capture),
          order_(program.event_count()),
          number_of_(program.slot_count(), kNone) {
        if (capture_) find_pools();
    }

    void step(const Instance& instance, const Operation& operation) {
        const std::uint32_t frame = frame_of(instance, operation);
        const std::uint32_t slot = program_.frame_slots[frame] + operation.slot;
        switch (operation.kind) {
            case OperationKind::allocate: allocate(operation, slot, instance.microbatch); break;
            case OperationKind::free: free(operation, slot); break;
            case OperationKind::record_stream:
                if (PlannedBuffer* const buffer = find(slot)) streams_of(*buffer) |= bit(operation.stream);
                break;
            case OperationKind::graph_begin:
                if (capture_ && instance.graph < pools_.size()) pool_ = pools_[instance.graph];
                order_.issue(operation);
                break;
            case OperationKind::copy:
                order_.issue(operation);
                filled(operation);
                break;
            default: order_.issue(operation, program_.frame_events[frame] + operation.slot); break;
        }
    }

    StageBuffers take() { return std::move(result_); }

private:
    static constexpr std::uint32_t kNone = UINT32_MAX;
    static std::uint32_t bit(Stream stream) { return 1U << program::index(stream); }

    /// Of an operation that has a slot or an event; what a compute or copy names as slot is no slot of a frame.
    [[nodiscard]] std::uint32_t frame_of(const Instance& instance, const Operation& operation) const {
        if (operation.kind == OperationKind::graph_launch || operation.scope == program::kGraphScope)
            return program_.graph_frame;
        return program_.scope_frames[instance.frames_begin + operation.scope];
    }

    PlannedBuffer* find(std::uint32_t slot) {
        const std::uint32_t number = number_of_[slot];
        return number == kNone ? nullptr : &result_.buffers[number];
    }

    std::uint32_t& streams_of(const PlannedBuffer& buffer) {
        return streams_[static_cast<std::size_t>(&buffer - result_.buffers.data())];
    }

    void allocate(const Operation& operation, std::uint32_t slot, std::int32_t microbatch) {
        number_of_[slot] = static_cast<std::uint32_t>(result_.buffers.size());
        PlannedBuffer buffer;
        buffer.bytes = operation.bytes;
        buffer.slot = slot;
        buffer.stream = operation.stream;
        buffer.made = time_++;
        buffer.known = order_.clock(operation.stream);
        buffer.pool = pool_;
        buffer.microbatch = microbatch;
        const bool loaded = operation.stream == Stream::h2d;
        if (loaded) to_fill_.push_back(number_of_[slot]);
        result_.buffers.push_back(buffer);
        streams_.push_back(loaded ? 0 : bit(operation.stream));
    }

    /// A buffer for a reload is filled by the copy behind its allocation.
    void filled(const Operation& operation) {
        if (operation.stream != Stream::h2d) return;
        for (const std::uint32_t number : to_fill_)
            result_.buffers[number].needed[program::index(Stream::h2d)] = order_.place(Stream::h2d);
        to_fill_.clear();
    }

    void free(const Operation& operation, std::uint32_t slot) {
        PlannedBuffer* const buffer = find(slot);
        if (buffer == nullptr) {
            result_.freed_elsewhere.push_back(slot);
            return;
        }
        buffer->gone = time_++;
        const std::uint32_t streams = streams_of(*buffer) | bit(operation.stream);
        for (int i = 0; i < program::kStreamCount; ++i) {
            const auto stream = static_cast<Stream>(i);
            if ((streams & bit(stream)) != 0) buffer->needed[program::index(stream)] = order_.place(stream);
        }
        number_of_[slot] = kNone;
    }

    /// Graphs that run on different streams are not ordered behind one another: each kind has memory of its own.
    void find_pools() {
        pools_.assign(program_.graphs.size(), 0);
        for (const Instance& instance : program_.instances(RunStage::steady))
            for (const Operation& operation : program_.bodies[program::index(instance.body)].operations)
                if (operation.kind == OperationKind::graph_launch && operation.stream != Stream::main)
                    pools_[instance.graph] = 1;
    }

    const StepProgram& program_;
    bool capture_;
    program::StreamOrder order_;
    StageBuffers result_;
    std::vector<std::uint32_t> number_of_;  ///< by slot: the buffer that lies there now
    std::vector<std::uint32_t> streams_;    ///< by buffer: one bit a stream that uses it up to its free
    std::vector<std::uint32_t> to_fill_;
    std::vector<std::uint32_t> pools_;  ///< by graph
    std::uint32_t pool_ = 0;
    std::uint32_t time_ = 0;
};

}  // namespace

StageBuffers planned_buffers(const StepProgram& program, RunStage stage) {
    Follower follower(program, stage);
    for (const Instance& instance : program.instances(stage))
        for (const Operation& operation : program.bodies[program::index(instance.body)].operations)
            follower.step(instance, operation);
    return follower.take();
}

}  // namespace stowage::memory
