#include "planner/simulator/pinned_demand.hpp"

#include <unordered_map>
#include <utility>

namespace stowage::simulator {
namespace {

using program::Operation;
using program::OperationKind;
using types::Bytes;

/// Acquisitions and releases along one stage.
class Collector {
public:
    void acquire(std::uint32_t slot, Bytes bytes) {
        live_.insert_or_assign(slot, uses_.size());
        uses_.push_back({.bytes = bytes, .acquired = clock_++});
    }
    /// What an earlier stage acquired lives from the start.
    void release(std::uint32_t slot, Bytes bytes) {
        const auto held = live_.find(slot);
        if (held == live_.end()) {
            uses_.push_back({.bytes = bytes, .acquired = 0, .released = clock_++});
            return;
        }
        uses_[held->second].released = clock_++;
        live_.erase(held);
    }
    std::vector<memory::PinnedUse> take() { return std::move(uses_); }

private:
    std::vector<memory::PinnedUse> uses_;
    std::unordered_map<std::uint32_t, std::size_t> live_;  ///< by slot
    std::uint64_t clock_ = 1;
};

}  // namespace

std::vector<memory::PinnedUse> pinned_uses(const program::StepProgram& program, program::RunStage stage) {
    Collector collector;
    for (const program::Instance& instance : program.instances(stage)) {
        for (const Operation& operation : program.bodies[program::index(instance.body)].operations) {
            const bool acquires = operation.kind == OperationKind::pinned_acquire;
            if (!acquires && operation.kind != OperationKind::pinned_release) continue;
            const std::uint32_t frame = program.scope_frames[instance.frames_begin + operation.scope];
            const std::uint32_t slot = program.frame_slots[frame] + operation.slot;
            if (acquires)
                collector.acquire(slot, operation.bytes);
            else
                collector.release(slot, operation.bytes);
        }
    }
    return collector.take();
}

memory::PinnedArena pinned_arena(const program::StepProgram& program) {
    memory::PinnedArena largest;
    for (int stage = 0; stage < program::kRunStageCount; ++stage) {
        memory::PinnedArena arena(pinned_uses(program, static_cast<program::RunStage>(stage)));
        if (arena.size() > largest.size()) largest = std::move(arena);
    }
    return largest;
}

}  // namespace stowage::simulator
