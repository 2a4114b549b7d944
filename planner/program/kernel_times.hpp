#pragma once

// How long GEMMs and attention take alone.
//
// GEMM. A multiprocessor streams operands into its main loop while it multiplies, so that the loop takes the longer of
// the two; the result leaves at the end, when there is nothing left to multiply. So
//     time = max(flops / rate, operands / bandwidth) + result / bandwidth + fixed cost of a kernel + ramp.
// Experts' GEMMs follow one another and pay the last two each: Transformer Engine spreads them over four streams, but
// each fills the GPU. What this leaves out: the choice of tiles and the last wave that they fill in part (a GPU at its
// power limit takes little harm, as its other multiprocessors speed up), and that streams let one expert's result leave
// while the next one multiplies.
// Held against 159 shapes on one H200: 7 of 119 dense ones are off by more than 6 %, none by more than 15 %; experts
// by up to 20 %. tests/planner/program/kernel_times_test.cpp.
//
// Attention. Rate by head size, and what little work loses: types::AttentionLoss. What one of its kernels leaves for
// the next (a deterministic backward's gradient of the scores) takes its bytes at the memory's bandwidth on top.
//
// Both multiply faster on a chip that does something else, or nothing, for part of the time
// (docs/decisions/2026-11-30-rates-by-duty.md).
//
// Source: docs/measurements/2026-11-29-kernel-shapes.md; docs/decisions/2026-11-29-kernel-times-by-shape.md.

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::program {

/// `faster`: how many times the device's rate it multiplies at; memory stays as fast as it is.
[[nodiscard]] types::Nanoseconds gemm_time(const layers::Kernel& kernel, const types::Device& device,
                                           double faster = 1);
/// A kernel that does not say how its work is spread runs at the full rate.
[[nodiscard]] types::Nanoseconds attention_time(const layers::Kernel& kernel, layers::Phase phase,
                                                const types::Device& device, double faster = 1);

/// What the device's GEMMs and attention gain where they run for this share of the time (types::DutyRate): below the
/// lowest known duty as at it. Cost: O(log known duties).
[[nodiscard]] types::DutyRate rates_at_duty(const types::Device& device, double duty);

}  // namespace stowage::program
