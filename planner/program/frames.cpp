#include "planner/program/frames.hpp"

namespace stowage::program {

Frames::Frames(const layers::StageLayers& stage, std::int64_t microbatches) {
    for (const layers::ChunkLayers& chunk : stage.chunks) {
        base_.push_back(chunk_frames_);
        stride_.push_back(static_cast<std::uint32_t>(chunk.order.size()) + 2);
        chunk_frames_ += static_cast<std::uint32_t>(microbatches) * stride_.back();
    }
}

}  // namespace stowage::program
