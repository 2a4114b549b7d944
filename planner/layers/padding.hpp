#pragma once

#include <string>
#include <vector>

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// A parameter, or the part of it, whose optimizer states a rank holds.
struct ShardPiece {
    std::string name;
    std::int64_t elements = 0;
};

/// Parameters of one kind and storage type of one virtual stage, and how they lie in Megatron's contiguous buffers.
struct ParameterBuffer {
    ParameterKind kind = ParameterKind::dense;
    std::size_t chunk = 0;              ///< the virtual stage
    bool fp8 = false;                   ///< FP8 weights, which are held and gathered as such
    std::int64_t elements = 0;          ///< of the parameters alone
    std::int64_t padded = 0;            ///< of the buffer
    std::int64_t replicas = 1;          ///< ranks that hold the same parameters
    std::int64_t shards = 1;            ///< ranks that the optimizer states are split over: one optimizer instance
    std::int64_t shard = 0;             ///< elements whose optimizer states this rank holds
    std::vector<std::int64_t> buckets;  ///< length of each; they add up to `padded`
    std::vector<std::size_t>
        completes;                   ///< of each bucket: the virtual stage's parameter, in model order, that fills it
    std::vector<ShardPiece> pieces;  ///< what the first rank of an instance holds, without padding
    std::vector<ShardPiece>
        last_pieces;  ///< the same of the last rank, the one whose memory Megatron logs; it has the bucket's padding

    [[nodiscard]] std::int64_t instances() const { return replicas / shards; }
    /// Such as "dense" or "FP8 expert", with the virtual stage where there is more than one.
    [[nodiscard]] std::string name(bool several_chunks) const;
};

/// The weights that run as FP8 matrices: linears of Transformer Engine, which are all but the embedding, the output
/// layer, the router and the norms.
bool is_engine_linear(const Parameter& parameter);

/// The buffers of a rank, in Megatron's order: by virtual stage, dense before expert, without those that would be
/// empty. `chunks`: the parameters of each virtual stage in model order.
///
/// Without the distributed optimizer a gradient buffer is as long as its parameters. With it parameters lie in reverse
/// order, each start rounded up to 64 elements, the end of a bucket to lcm(ranks of an optimizer instance, 128) so that
/// it divides evenly; a rank owns an equal part of each bucket. There is one bucket, and one more for an embedding that
/// is shared with another stage; with overlapped reduction the first virtual stage of the first pipeline rank has a
/// bucket for every max(40e6, 1e6 * data-parallel size) elements.
/// Source: Megatron-LM, core/optimizer/param_layout.py, core/distributed/param_and_grad_buffer.py and
/// distributed_data_parallel.py.
std::vector<ParameterBuffer> parameter_buffers(const types::Scenario& scenario, std::int64_t pipeline_rank,
                                               const std::vector<std::vector<Parameter>>& chunks);

}  // namespace stowage::layers
