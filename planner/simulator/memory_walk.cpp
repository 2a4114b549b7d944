#include "planner/simulator/memory_walk.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::simulator {

using program::OperationKind;

bool MemoryWalk::handles(const program::StepProgram& program) {
    for (const program::Body& body : program.bodies)
        for (const program::Operation& operation : body.operations)
            if (operation.kind == OperationKind::record_stream || operation.kind == OperationKind::pinned_acquire ||
                operation.kind == OperationKind::pinned_release)
                return false;
    return true;
}

memory::EventHandle MemoryWalk::NoEvents::record(memory::Stream) {
    STOWAGE_CHECK(false, "a block is held though no other stream uses it");
    return {};
}

bool MemoryWalk::NoEvents::completed(memory::EventHandle) { return true; }

MemoryWalk::MemoryWalk(const program::StepProgram& program, const types::Node& node, const SimulationOptions& options)
    : program_(program),
      node_(node),
      stop_above_(options.stop_above_allocated),
      device_memory_(options.device_memory ? memory::VirtualDeviceMemory(*options.device_memory)
                                           : memory::VirtualDeviceMemory()),
      allocator_(options.allocator, device_memory_, events_),
      bodies_(program.bodies.size()),
      slots_(program.slot_count(), 0) {
    for (std::size_t body = 0; body < bodies_.size(); ++body) {
        std::uint32_t number = 0;
        for (const program::Operation& operation : program.bodies[body].operations) {
            const bool allocates = operation.kind == OperationKind::allocate;
            if (allocates || operation.kind == OperationKind::free)
                bodies_[body].push_back({operation.bytes, operation.slot, number, operation.scope,
                                         static_cast<std::uint8_t>(operation.stream), allocates});
            ++number;
        }
    }
}

/// Between steps all that is free lies in blocks as large as what persists lets them be, so that segments and the
/// places of what persists are all that the allocator's answers depend on. Where both are as at the begin of the last
/// walk of the same instances, this one would end and peak as that did.
bool MemoryWalk::walk(const std::vector<program::Instance>& sequence) {
    std::vector<memory::Address> begins_with = places();
    const bool same = last_ == &sequence && device_calls_.empty() && begins_with == began_with_;
    last_ = &sequence;
    began_with_ = std::move(begins_with);
    calls_before_ = allocator_.stats().device_allocations;
    return same || walk_again(sequence);
}

bool MemoryWalk::walk_again(const std::vector<program::Instance>& sequence) {
    device_calls_.clear();
    allocator_.reset_peaks();
    for (std::uint32_t number = 0; number < sequence.size(); ++number) {
        const program::Instance& instance = sequence[number];
        const std::uint32_t* const frames = program_.scope_frames.data() + instance.frames_begin;
        for (const Operation& operation : bodies_[program::index(instance.body)]) {
            std::uint32_t& slot = slots_[program_.frame_slots[frames[operation.scope]] + operation.slot];
            if (operation.allocates) {
                if (!allocate(operation, slot, number)) return false;
            } else {
                STOWAGE_CHECK(slot != 0, "a slot is freed that holds nothing");
                allocator_.free(static_cast<memory::BlockHandle>(slot - 1));
                slot = 0;
            }
        }
    }
    check_only_persistent_left();
    return true;
}

bool MemoryWalk::allocate(const Operation& operation, std::uint32_t& slot, std::uint32_t instance) {
    STOWAGE_CHECK(slot == 0, "a slot is allocated twice");
    const std::int64_t before = allocator_.stats().device_allocations;
    const auto block = allocator_.allocate(operation.bytes, operation.stream);
    const memory::AllocatorStats& stats = allocator_.stats();
    if (!block || events_.asked() || stats.retries != 0 || (stop_above_ && stats.allocated > *stop_above_))
        return false;
    slot = static_cast<std::uint32_t>(*block) + 1;
    if (const std::int64_t calls = stats.device_allocations - before; calls != 0)
        device_calls_.push_back({instance, operation.number, calls * node_.host.device_allocation_call.count()});
    return true;
}

void MemoryWalk::check_only_persistent_left() const {
    STOWAGE_CHECK(std::all_of(slots_.begin(), slots_.begin() + program_.frame_slots[program_.persistent_frames],
                              [](std::uint32_t slot) { return slot == 0; }),
                  "a step leaves memory allocated that does not persist");
}

/// Where the blocks that persist lie; 0 for a slot without one. Between steps there are no others.
std::vector<memory::Address> MemoryWalk::places() const {
    std::vector<memory::Address> places;
    for (std::size_t slot = program_.frame_slots[program_.persistent_frames]; slot < slots_.size(); ++slot)
        places.push_back(
            slots_[slot] == 0 ? 0 : allocator_.place(static_cast<memory::BlockHandle>(slots_[slot] - 1)).address);
    return places;
}

void MemoryWalk::report(program::StageResult& result) const {
    const memory::AllocatorStats& stats = allocator_.stats();
    result.peak_allocated = stats.peak_allocated;
    result.peak_reserved = stats.peak_reserved;
    result.allocated_after = stats.allocated;
    result.device_allocation_calls = stats.device_allocations - calls_before_;
}

}  // namespace stowage::simulator
