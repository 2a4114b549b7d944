#pragma once

#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/schedule.hpp"

namespace stowage::program {

/// Numbers of the frames of a rank: for each chunk its layers, then what arrives from and leaves to the neighbours;
/// last what lives through the whole run.
class Frames {
public:
    Frames(const layers::StageLayers& stage, std::int64_t microbatches);

    [[nodiscard]] std::uint32_t layer(Chunk chunk, std::size_t position) const {
        const auto stage = static_cast<std::size_t>(chunk.virtual_stage);
        return base_[stage] + static_cast<std::uint32_t>(chunk.microbatch) * stride_[stage] +
               static_cast<std::uint32_t>(position);
    }
    /// What the chunk's first layer hands back, and what its last layer hands on.
    [[nodiscard]] std::uint32_t inward(Chunk chunk) const { return layer(chunk, positions(chunk)); }
    [[nodiscard]] std::uint32_t outward(Chunk chunk) const { return layer(chunk, positions(chunk) + 1); }
    [[nodiscard]] std::uint32_t persistent() const { return chunk_frames_; }
    [[nodiscard]] std::uint32_t optimizer() const { return chunk_frames_ + 1; }
    [[nodiscard]] std::uint32_t graphs() const { return chunk_frames_ + 2; }

private:
    [[nodiscard]] std::size_t positions(Chunk chunk) const {
        return stride_[static_cast<std::size_t>(chunk.virtual_stage)] - 2;
    }

    std::vector<std::uint32_t> base_;
    std::vector<std::uint32_t> stride_;
    std::uint32_t chunk_frames_ = 0;
};

}  // namespace stowage::program
