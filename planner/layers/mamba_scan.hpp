#pragma once

// The convolution and the chunked scan of a Mamba-2 mixer, one autograd function (mamba_split_conv1d_scan_combined).
//
// Its input packs gate z, x, B, C and a step a head. It keeps that input, the scan's output before the gate, and three
// small fp32 vectors; the convolution, the steps' running sums, the states of all chunks and the products C B^T are
// made again in the backward. With T tokens, H heads of size p, G groups, state n, chunks of Q:
//     cumsum        fp32 T H twice
//     chunk_state   T n p H 2 operations, fp32 (T/Q) H p n
//     state_passing the states along the sequence, in 16 bits for the forward and in fp32 for the backward
//     bmm           C B^T: 2 T Q n G, fp32 T Q G
//     chunk_scan    inside a chunk half of 2 T Q p H (causal), from the states 2 T n p H; times silu(z)
// The backward takes chunk_scan's two products three times, for x, for B and C, and for the steps' gradient.
// Bytes per operation put all of these kernels far below the rate of a matrix product, so that bytes give their times.
// That is a lower bound: on an H200 the forward of one Nemotron 3 Nano layer moved its 886 MB at 2.4 TB/s, the backward
// 2.7 GB at 2.1 TB/s, about half of what a copy reaches there. What is kept and the peaks of both directions were
// measured there too and are held by the test.
// Partial sums over blocks (of D and the steps' bias) are left out.
// Source: state-spaces/mamba, ops/triton/ssd_combined.py, ssd_chunk_state.py, ssd_chunk_scan.py, ssd_bmm.py,
// ssd_state_passing.py.
//
// Tested by: tests/planner/layers/hybrid_test.cpp.

#include <vector>

#include "planner/layers/hybrid_dimensions.hpp"
#include "planner/layers/writer.hpp"

namespace stowage::layers {

struct MambaScan {
    SavedIndex input{};
    SavedIndex ungated{};
    std::vector<SavedIndex> small;
    Slot output{};
};

/// `input` [b, s, in_width], not dropped; the output [b, s, inner] is left to the caller.
MambaScan mamba_scan_forward(Writer& writer, const MambaDimensions& mamba, Slot input);
/// Drops `gradient`, the output's; returns the input's. Adds the gradients of all the mixer's small parameters but the
/// norm's.
Slot mamba_scan_backward(Writer& writer, const MambaDimensions& mamba, const MambaScan& scan, Slot gradient);

}  // namespace stowage::layers
