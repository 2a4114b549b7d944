#pragma once

#include <array>
#include <cstdint>

#include "planner/layers/layer_script.hpp"
#include "planner/program/durations.hpp"
#include "planner/program/step_program.hpp"
#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::program {

/// What a choice moves in one steady step of one rank.
struct OffloadCounts {
    std::array<Bytes, types::kModuleCount> bytes{};          ///< device to host, by module
    std::array<std::int64_t, types::kModuleCount> groups{};  ///< groups offloaded
    std::array<Bytes, types::kModuleCount> table{};          ///< what Megatron's own summary table would print
    std::int64_t record_groups = 0;                          ///< groups offloaded in the first iteration
    std::int64_t record_inline_reads = 0;                    ///< groups read back inline on the main stream in it
    std::int64_t steady_inline_reads = 0;
    std::int64_t eligible_groups = 0;  ///< groups with something to move, over all chunks
};

/// The program of one rank, and what the policy made of it.
struct Lowered {
    StepProgram program;
    OffloadCounts counts;
    std::int64_t graph_inputs = 0;                ///< sets of input buffers of layer graphs
    std::int64_t graph_inputs_without_reuse = 0;  ///< captured forwards, which would each have their own
    bool chunk_mismatch =
        false;  ///< Megatron stops with an assertion in the second iteration (H3); `steady` is incomplete
    bool released_static = false;       ///< a forced release empties a buffer of a graph (H4)
    bool released_while_saved = false;  ///< a forced release empties a tensor that a kept group still needs
};

/// Lowers one rank of a pipeline: schedule, layers and offload policy become one program for set-up, record and steady
/// steps. Shapes: `microbatches` forwards and backwards of the stage's layers, 1F1B, interleaved if it has
/// several virtual stages. Cost: O(instances * hooks +
/// distinct bodies * their operations). Throws: std::logic_error if a script is not well formed (our bug).
Lowered lower(const layers::StageLayers& stage, std::int64_t microbatches, const types::OffloadChoice& choice,
              types::RuleSet rules, const Durations& durations);

}  // namespace stowage::program
