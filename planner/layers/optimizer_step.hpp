#pragma once

#include "planner/layers/dimensions.hpp"
#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// What follows the last backward of a step: gradients reduced over their replicas (buffer by buffer; with several
/// optimizer instances first inside an instance, then the shards across them), partial gradients of replicated
/// parameters summed over the tensor-parallel ranks (with sequence parallelism each saw its own tokens), those of a
/// tied embedding summed over the stages that hold it, the norm for clipping, the optimizer, parameters gathered,
/// gradients cleared. All of it is memory bound: the optimizer reads the gradient and reads and writes main parameter
/// and moments, then main parameters become bf16 ones, unless it writes those itself. With states on the host the
/// device waits for copies and the host's update. Temporaries of the optimizer are not modelled: in recorded runs it
/// was never the peak.
/// `stage`: with its chunks and their scripts.
LayerScript optimizer_step(const types::Scenario& scenario, const Dimensions& dimensions, const StageLayers& stage);

/// Gives every virtual stage the buckets whose gradients are reduced beside its last backward (overlap_grad_reduce) and
/// whose parameters are gathered beside its first forward (overlap_param_gather); the step itself then leaves these
/// out.
void add_overlapped_buckets(const types::Scenario& scenario, const Dimensions& dimensions, StageLayers& stage);

}  // namespace stowage::layers
