#pragma once

// A Mamba-2 mixer as Megatron trains it, with the norm before it fused into its first linear:
//
//     input -> norm + in_proj -> [z x B C dt] -> convolution of x, B, C -> scan -> gated by z -> norm by group ->
//     out_proj
//
// None of its tensors has an offload group. Saved: the norm's input, statistics and output (in_proj), the packed
// [z x B C dt] and the scan's ungated output (mamba_scan.hpp), the gated output with one fp32 number a group (norm),
// and the norm's output (out_proj). With several sequences in a microbatch the packed tensor and the gated output are
// transposed into new tensors, and the scan keeps the new one.
// Several context-parallel ranks: hybrid_exchange.hpp, before the convolution and after the scan.
// Source: Megatron-LM, core/ssm/mamba_mixer.py (use_mamba_mem_eff_path); state-spaces/mamba, ops/triton/
// layernorm_gated.py. Departs from it in leaving out the partial sums of the norm's weight gradient.
//
// Tested by: tests/planner/layers/hybrid_test.cpp.

#include "planner/layers/linear.hpp"
#include "planner/layers/mamba_scan.hpp"

namespace stowage::layers {

struct Mamba {
    NormLinear in_proj;
    MambaScan scan;
    SavedIndex norm_input{};
    SavedIndex norm_statistic{};
    RowLinear out_proj;
};

/// From the layer's input to out_proj's output, left to the caller in `out_proj.output`.
Mamba mamba_forward(Writer& writer, Slot input);
/// Allocates and fills `grad_input`; the gradient of out_proj's output is not dropped.
void mamba_backward(Writer& writer, const Mamba& mamba, Slot grad_input);
void mamba_parameters(Writer& writer);

}  // namespace stowage::layers
