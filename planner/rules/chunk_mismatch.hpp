#pragma once

#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// Whether Megatron's offload manager loses count of its chunks in the second iteration, or at the first replay of
/// graphs, which passes captured groups over.
///
/// It takes a chunk (one microbatch's forward) for finished when nothing of it is waiting for a copy or a reload. If
/// the first groups of a chunk all stay on the GPU, that is true too early: the next group is taken for the next
/// chunk's, and the backward stops with "Chunk mismatch". Only the last chunk has no next one.
///
/// Worked example: one layer, {core_attn, attn_proj}, two microbatches. The first chunk keeps one group per name, so
/// both; after core_attn nothing waits, and attn_proj is taken for chunk 1.
///
/// Limits: one virtual stage per rank; layers evenly split or with first and last stages given; of
/// delta_offload_bytes_across_pp_ranks only that it keeps the first group of rank 1 and above; every group is taken to
/// hold a tensor of at least the minimum size.
/// Source: Megatron-LM, core/pipeline_parallel/fine_grained_activation_offload.py between #3697 and #6783.
bool loses_count_of_chunks(const types::Scenario& scenario, const types::OffloadChoice& choice);

}  // namespace stowage::rules
