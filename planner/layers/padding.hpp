#pragma once

#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/parallel.hpp"

namespace stowage::layers {

/// Parameters of one kind on a rank and how they lie in Megatron's contiguous buffers.
struct ParameterBuffer {
    ParameterKind kind = ParameterKind::dense;
    std::int64_t elements = 0;  ///< of the parameters alone
    std::int64_t padded = 0;    ///< of the buffer
    std::int64_t replicas = 1;  ///< ranks that hold the same parameters
    std::int64_t shard = 0;     ///< elements whose optimizer states this rank holds
};

/// The dense and the expert buffer of a rank, without those that would be empty.
/// Without the distributed optimizer the gradient buffer is as long as its parameters. With it parameters lie in
/// reverse order, each start rounded up to 64 elements, the end of a bucket to lcm(replicas, 128) so that it divides
/// evenly; a rank owns 1/replicas. Without overlapped reduction there is one bucket, and one more for an embedding that
/// is shared with another stage.
/// Source: Megatron-LM, core/optimizer/param_layout.py and core/distributed/param_and_grad_buffer.py.
std::vector<ParameterBuffer> parameter_buffers(const std::vector<Parameter>& parameters,
                                               const types::ParallelLayout& layout, bool distributed,
                                               bool shared_embedding);

}  // namespace stowage::layers
