#include "planner/program/lowering.hpp"

#include "planner/program/stage_lowering.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::program {

Lowered lower(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
              types::RuleSet rules, const Durations& durations) {
    STOWAGE_CHECK(microbatches >= 1, "a step has at least one microbatch");
    STOWAGE_CHECK(!stage.chunks.empty(), "a stage has at least one chunk");
    for (const layers::ChunkLayers& chunk : stage.chunks)
        STOWAGE_CHECK(!chunk.order.empty(), "a chunk has at least one frame");
    return StageLowering(stage, microbatches, choice, rules, durations).run();
}

}  // namespace stowage::program
