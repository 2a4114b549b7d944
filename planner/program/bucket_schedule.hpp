#pragma once

// When the buckets of gradients and parameters travel that run beside compute.
//
// Gradients: on the first rank of a plain pipeline each bucket as soon as the last microbatch's backward has filled it;
// elsewhere all buckets of a virtual stage together, after its last backward. Interleaved ranks do that at the same
// time: rank r waits r chunks longer, and at the end what is left goes.
// Parameters: in a plain pipeline a bucket is launched and waited for where the first forward needs it, and the next
// one launched behind it; interleaved, the first two virtual stages at the start of the step, then the one after the
// next.
//
// Source: Megatron-LM, core/pipeline_parallel/schedules.py (grad_sync_func, param_sync_func) and
// core/distributed/param_and_grad_buffer.py (finish_param_sync), re-described.
// Tested by: tests/planner/program/experts_lowering_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "planner/program/schedule.hpp"

namespace stowage::program {

class BucketSchedule {
public:
    using Launches = std::vector<const layers::OverlappedBucket*>;
    /// A wait for all that was launched, and what is launched before and after it.
    struct Wait {
        Launches before;
        Launches after;
    };

    /// Keeps a reference to the stage.
    BucketSchedule(const layers::StageLayers& stage, const PipelineShape& shape);

    void begin_step() { backwards_done_ = 0; }
    [[nodiscard]] bool any_reductions() const;
    [[nodiscard]] Launches at_step_begin() const;
    [[nodiscard]] std::vector<Wait> before_chunk(Chunk chunk) const;
    [[nodiscard]] std::vector<Wait> before_layer(Chunk chunk, std::size_t position) const;
    [[nodiscard]] Launches after_layer(Chunk chunk, std::size_t position) const;
    /// To be called once after each chunk's backward.
    Launches after_backward();

private:
    [[nodiscard]] const layers::ChunkLayers& layers_of(Chunk chunk) const {
        return stage_.chunks[static_cast<std::size_t>(chunk.virtual_stage)];
    }
    [[nodiscard]] bool interleaved() const { return shape_.virtual_stages > 1; }
    [[nodiscard]] bool by_bucket() const { return !interleaved() && shape_.rank == 0; }
    [[nodiscard]] bool is_last(Chunk chunk) const { return chunk.microbatch + 1 == shape_.microbatches; }
    void add_gathers(std::int64_t virtual_stage, Launches& launches) const;

    const layers::StageLayers& stage_;
    PipelineShape shape_;
    std::vector<Chunk> backwards_;
    std::int64_t backwards_done_ = 0;
};

}  // namespace stowage::program
