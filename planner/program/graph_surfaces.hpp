#pragma once

// The buffers that layer graphs read their inputs from, and which graphs share them.
//
// Every captured forward has static inputs. Transformer Engine takes the samples of a chunk for consumed once the
// backward of a chunk of that virtual stage has been captured, and gives them, first in first out, to later forwards
// whose tensors have the same sizes. Gradients of outputs live only during a backward: one set of buffers for all
// graphs of the same sizes.
//
// Worked example, 4 stages, stage 0, 8 microbatches, one layer: 1F1B holds 4 microbatches in flight, so 4 samples with
// reuse and 8 without.
//
// Source: Megatron-LM, core/transformer/cuda_graphs.py (TECudaGraphHelper); Transformer Engine, pytorch/graph.py,
// re-described. Tested by: tests/planner/program/graph_surfaces_test.cpp.

#include <cstdint>
#include <vector>

#include "planner/program/body_builder.hpp"
#include "planner/program/schedule.hpp"

namespace stowage::program {

/// One captured pass of a chunk.
struct CapturedPass {
    Chunk chunk;
    bool forward = true;
    friend bool operator==(const CapturedPass&, const CapturedPass&) = default;
};

/// The passes in the order of their capture: with one pipeline stage the first microbatch, otherwise all of them as the
/// schedule has them.
std::vector<CapturedPass> capture_order(const PipelineShape& shape);

/// Where the buffers of one captured graph begin, among those of its kind.
struct GraphBuffers {
    std::uint32_t inputs = 0;     ///< in SurfacePlan::inputs; of a backward, those of its forward
    std::uint32_t gradients = 0;  ///< in SurfacePlan::gradients; of a backward
    friend bool operator==(const GraphBuffers&, const GraphBuffers&) = default;
};

struct SurfacePlan {
    std::vector<Bytes> inputs;          ///< the buffers of all samples
    std::vector<Bytes> gradients;       ///< the buffers of the gradients of outputs
    std::vector<GraphBuffers> buffers;  ///< by graph, in the order of the captures
    std::int64_t samples = 0;           ///< with reuse
    std::int64_t without_reuse = 0;     ///< captured forwards
};

/// `surfaces`: by virtual stage, of its graphs in forward order. Without `reuse` every captured pass has buffers of its
/// own (local graphs, whose surfaces hold only what is not handed on in place).
SurfacePlan plan_surfaces(const std::vector<CapturedPass>& order,
                          const std::vector<std::vector<GraphSurface>>& surfaces, bool reuse);

}  // namespace stowage::program
