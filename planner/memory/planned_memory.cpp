#include "planner/memory/planned_memory.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "planner/memory/planned_buffers.hpp"
#include "planner/memory/planned_held.hpp"
#include "planner/memory/planned_placement.hpp"

namespace stowage::memory {
namespace {

using program::Instance;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using program::StepProgram;

/// Whether addresses may differ from one microbatch to the next: there is one, or they overlap in a pipeline.
bool by_size_allowed(const StepProgram& program) {
    std::int32_t last = 0;
    for (const Instance& instance : program.instances(RunStage::steady)) {
        last = std::max(last, instance.microbatch);
        for (const Operation& operation : program.bodies[program::index(instance.body)].operations)
            if (operation.kind == OperationKind::peer_transfer) return true;
    }
    return last == 0;
}

Placement smallest(const std::vector<PlannedBuffer>& buffers, bool by_size, std::int64_t bound) {
    Placement best = place_online(buffers, Online::lowest);
    const auto consider = [&](Placement other) {
        if (other.size < best.size) best = std::move(other);
    };
    if (best.size > bound) consider(place_online(buffers, Online::best_fit));
    if (best.size == bound || buffers.size() > PlannedMemory::kFew) return best;
    if (by_size)
        consider(place_by_size(buffers));
    else if (std::optional<Placement> alike = place_alike_by_size(buffers))
        consider(std::move(*alike));
    return best;
}

class Planner {
public:
    explicit Planner(const StepProgram& program) : program_(program), by_size_(by_size_allowed(program)) {}

    PlannedMemory plan() {
        StageBuffers steady = planned_buffers(program_, RunStage::steady);
        plan_states(steady);
        plan_graphs();
        plan_step(std::move(steady));
        result_.steady_peak = planned_steady_peak(program_);
        return std::move(result_);
    }

private:
    std::vector<std::int64_t>& offsets(RunStage stage) { return result_.offsets[static_cast<std::size_t>(stage)]; }

    /// Places some of a stage's buffers in the region, behind what is there.
    void place(RunStage stage, const std::vector<PlannedBuffer>& buffers, const std::vector<std::size_t>& numbers,
               PlannedMemory::Region& region) {
        const std::int64_t bound = live_peak(buffers);
        const Placement placement = smallest(buffers, by_size_, bound);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            offsets(stage)[numbers[i]] = region.begin + region.size + placement.offsets[i];
        region.size += placement.size;
        region.live_peak += bound;
    }

    /// Set-up's buffers, then a place for each slot that lives from one step into the next.
    void plan_states(const StageBuffers& steady) {
        StageBuffers setup = planned_buffers(program_, RunStage::setup);
        offsets(RunStage::setup).assign(setup.buffers.size(), PlannedMemory::kNowhere);
        std::vector<std::size_t> numbers;
        for (std::size_t i = 0; i < setup.buffers.size(); ++i) numbers.push_back(i);
        place(RunStage::setup, setup.buffers, numbers, result_.states);
        for (const std::uint32_t slot : steady.freed_elsewhere) carried_.emplace(slot, PlannedMemory::kNowhere);
        carry(RunStage::record, planned_buffers(program_, RunStage::record));
        if (!program_.instances(RunStage::eager).empty())
            carry(RunStage::eager, planned_buffers(program_, RunStage::eager));
        carry(RunStage::steady, steady);
        result_.graphs.begin = result_.states.size;
    }

    /// Gives what the stage leaves behind its place among the states.
    void carry(RunStage stage, const StageBuffers& found) {
        offsets(stage).assign(found.buffers.size(), PlannedMemory::kNowhere);
        for (std::size_t i = 0; i < found.buffers.size(); ++i) {
            const PlannedBuffer& buffer = found.buffers[i];
            if (buffer.gone != PlannedBuffer::kNever) continue;
            std::int64_t& offset = carried_.emplace(buffer.slot, PlannedMemory::kNowhere).first->second;
            if (offset == PlannedMemory::kNowhere) {
                offset = result_.states.size;
                result_.states.size += placed_bytes(buffer);
                result_.states.live_peak += placed_bytes(buffer);
            }
            offsets(stage)[i] = offset;
        }
    }

    void plan_graphs() {
        const StageBuffers captured = planned_buffers(program_, RunStage::capture);
        offsets(RunStage::capture).assign(captured.buffers.size(), PlannedMemory::kNowhere);
        for (std::uint32_t pool = 0; pool < 2; ++pool) {
            std::vector<PlannedBuffer> buffers;
            std::vector<std::size_t> numbers;
            for (std::size_t i = 0; i < captured.buffers.size(); ++i) {
                if (captured.buffers[i].pool != pool) continue;
                buffers.push_back(captured.buffers[i]);
                numbers.push_back(i);
            }
            place(RunStage::capture, buffers, numbers, result_.graphs);
        }
        result_.step.begin = result_.graphs.begin + result_.graphs.size;
    }

    void plan_step(StageBuffers steady) {
        std::vector<PlannedBuffer> buffers;
        std::vector<std::size_t> numbers;
        for (std::size_t i = 0; i < steady.buffers.size(); ++i) {
            if (offsets(RunStage::steady)[i] != PlannedMemory::kNowhere) continue;
            buffers.push_back(steady.buffers[i]);
            numbers.push_back(i);
        }
        place(RunStage::steady, buffers, numbers, result_.step);
    }

    const StepProgram& program_;
    bool by_size_;
    PlannedMemory result_;
    std::map<std::uint32_t, std::int64_t> carried_;  ///< by slot: where what outlives a step lies
};

}  // namespace

PlannedMemory plan_memory(const StepProgram& program) { return Planner(program).plan(); }

}  // namespace stowage::memory
