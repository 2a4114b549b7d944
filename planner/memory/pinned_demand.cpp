#include "planner/memory/pinned_demand.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace stowage::memory {
namespace {

using program::Operation;
using program::OperationKind;

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
    std::vector<PinnedUse> take() { return std::move(uses_); }

private:
    std::vector<PinnedUse> uses_;
    std::unordered_map<std::uint32_t, std::size_t> live_;  ///< by slot
    std::uint64_t clock_ = 1;
};

/// The acquisitions and releases of each body, which most have none of.
std::vector<std::vector<const Operation*>> pinned_operations(const program::StepProgram& program) {
    std::vector<std::vector<const Operation*>> of_body(program.bodies.size());
    for (std::size_t body = 0; body < of_body.size(); ++body)
        for (const Operation& operation : program.bodies[body].operations)
            if (operation.kind == OperationKind::pinned_acquire || operation.kind == OperationKind::pinned_release)
                of_body[body].push_back(&operation);
    return of_body;
}

std::vector<PinnedUse> uses_of(const program::StepProgram& program, program::RunStage stage,
                               const std::vector<std::vector<const Operation*>>& of_body) {
    Collector collector;
    for (const program::Instance& instance : program.instances(stage)) {
        for (const Operation* operation : of_body[program::index(instance.body)]) {
            const std::uint32_t frame = program.scope_frames[instance.frames_begin + operation->scope];
            const std::uint32_t slot = program.frame_slots[frame] + operation->slot;
            if (operation->kind == OperationKind::pinned_acquire)
                collector.acquire(slot, operation->bytes);
            else
                collector.release(slot, operation->bytes);
        }
    }
    return collector.take();
}

}  // namespace

std::vector<PinnedUse> pinned_uses(const program::StepProgram& program, program::RunStage stage) {
    return uses_of(program, stage, pinned_operations(program));
}

Bytes pinned_arena_size(const program::StepProgram& program, bool first_iteration) {
    using program::RunStage;
    const auto of_body = pinned_operations(program);
    const auto size = [&](RunStage stage) { return PinnedArena(uses_of(program, stage, of_body)).size(); };
    Bytes others = size(RunStage::steady);
    if (first_iteration) others = std::max({others, size(RunStage::record), size(RunStage::eager)});
    return size(RunStage::capture) + others;
}

}  // namespace stowage::memory
