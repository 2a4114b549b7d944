#include "planner/memory/planned_held.hpp"

#include <algorithm>
#include <vector>

namespace stowage::memory {
namespace {

using program::Instance;
using program::Operation;
using program::OperationKind;
using program::RunStage;
using types::Bytes;

class HeldBytes {
public:
    explicit HeldBytes(const program::StepProgram& program) : program_(program), slots_(program.slot_count()) {}

    /// Result: the peak while the stage was issued.
    Bytes walk(RunStage stage) {
        peak_ = held_;
        for (const Instance& instance : program_.instances(stage))
            for (const Operation& operation : program_.bodies[program::index(instance.body)].operations)
                if (operation.kind == OperationKind::allocate || operation.kind == OperationKind::free)
                    step(instance, operation);
        return peak_;
    }

private:
    void step(const Instance& instance, const Operation& operation) {
        const std::uint32_t frame = operation.scope == program::kGraphScope
                                        ? program_.graph_frame
                                        : program_.scope_frames[instance.frames_begin + operation.scope];
        Bytes& slot = slots_[program_.frame_slots[frame] + operation.slot];
        held_ -= slot;
        slot = operation.kind == OperationKind::allocate ? operation.bytes : Bytes{};
        held_ += slot;
        peak_ = std::max(peak_, held_);
    }

    const program::StepProgram& program_;
    std::vector<Bytes> slots_;
    Bytes held_;
    Bytes peak_;
};

}  // namespace

Bytes planned_steady_peak(const program::StepProgram& program) {
    HeldBytes held(program);
    for (const RunStage stage : {RunStage::setup, RunStage::capture, RunStage::steady}) held.walk(stage);
    return held.walk(RunStage::steady);
}

}  // namespace stowage::memory
