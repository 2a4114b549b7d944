#include "executor/engine/pinned_layout.hpp"

#include <algorithm>

#include "planner/memory/pinned_arena.hpp"
#include "planner/memory/pinned_demand.hpp"

namespace stowage::executor {

using program::RunStage;
using types::Bytes;

PinnedLayout::PinnedLayout(const program::StepProgram& program, bool first_iteration) {
    Bytes captured;
    for (const RunStage stage : {RunStage::capture, RunStage::record, RunStage::eager, RunStage::steady}) {
        if (!first_iteration && (stage == RunStage::record || stage == RunStage::eager)) continue;
        const std::vector<memory::PinnedUse> uses = memory::pinned_uses(program, stage);
        const memory::PinnedArena arena(uses);
        const Bytes begin = stage == RunStage::capture ? Bytes{0} : captured;
        for (std::size_t i = 0; i < uses.size(); ++i)
            if (uses[i].acquired > 0)  // the others were acquired by an earlier stage
                offsets_[static_cast<std::size_t>(stage)].push_back(begin + arena.offset(i));
        if (stage == RunStage::capture) captured = arena.size();
        size_ = std::max(size_, begin + arena.size());
    }
}

}  // namespace stowage::executor
