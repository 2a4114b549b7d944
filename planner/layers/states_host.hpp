#pragma once

#include <vector>

#include "planner/layers/padding.hpp"
#include "scenarios/types/time.hpp"

namespace stowage::layers {

/// Optimizer states on the host (`optimizer_cpu_offload`).
///
/// Of the parameters of each kind that a rank owns, in the order of its buffers, whole ones go to the host until
/// `optimizer_offload_fraction` of the elements is reached. Page-locked there: an fp32 copy of the parameter and one of
/// its gradient; in ordinary memory: Adam's moments. The device keeps nothing of them; of the others it keeps fp32 main
/// parameters and moments whatever types the precision-aware optimizer was given.
/// Source: Megatron-LM, core/optimizer/cpu_offloading/hybrid_optimizer.py. Departs from it in the order: Megatron sorts
/// parameters into groups with and without weight decay first, which moves norms and biases behind the matrices.
struct HostShare {
    std::vector<ShardPiece> pieces;
    std::vector<std::int64_t> elements;  ///< per buffer
};
HostShare host_share(const types::Scenario& scenario, const std::vector<ParameterBuffer>& buffers);

/// Elements of the largest one: what a converting copy holds on the device, in fp32.
std::int64_t largest_piece(const HostShare& share);

/// From the first gradient's copy to the last parameter's return: gradients are copied to the host in fp32, Adam runs
/// there, fp32 parameters return and become bf16 on the device (PyTorch converts there in a copy that does not block).
/// Adam reads gradient, parameter and moments and writes the last three, 28 bytes an element, at this rank's share of
/// the node's memory rate. With `overlap_cpu_optimizer_d2h_h2d` every parameter passes the three stations by itself,
/// else all do together.
types::Nanoseconds host_update_time(const types::Scenario& scenario, const HostShare& share);

}  // namespace stowage::layers
