#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "scenarios/types/model.hpp"
#include "scenarios/types/parallel.hpp"

namespace stowage::types {

/// What one virtual stage of the pipeline holds, in the order it runs.
struct StageContents {
    bool embedding = false;
    std::int64_t first_layer = 0;  ///< number of its first transformer layer
    std::int64_t layers = 0;       ///< consecutive transformer layers
    std::int64_t mtp_layers = 0;   ///< multi-token-prediction layers
    bool loss = false;
    friend bool operator==(const StageContents&, const StageContents&) = default;
};

/// Indexed by virtual stage, then pipeline rank: the order in which a microbatch passes through.
/// Virtual stage v of rank r is the (v * ranks + r)-th stop of a microbatch.
using StageTable = std::vector<std::vector<StageContents>>;

/// Why a layout does not place the layers, in one sentence.
struct NoStages {
    std::string reason;
};

/// Places embedding, layers and loss on the stages of a pipeline.
/// Result: num_virtual_stages_per_pipeline_rank x pipeline_model_parallel_size stages whose layers are those of the
/// model once each, or the reason why not.
/// Source: Megatron-LM, transformer_block.get_num_layers_to_build and pipeline_parallel_layer_layout: a layout string
/// is taken literally; otherwise the given first and last ranks keep their layers and the rest is even, or the
/// embedding and the loss each count as one layer. Every rank's layers divide evenly over its virtual stages.
std::variant<StageTable, NoStages> stage_table(const ParallelLayout& layout, const Model& model);

/// The same for a layout that is known to place the layers. Throws: std::logic_error otherwise.
StageTable stages_of(const ParallelLayout& layout, const Model& model);

/// Stages of a layout string such as `Et*3|(tt|)*6mL`: E embedding, t transformer layer, m multi-token-prediction
/// layer, L loss, | the next stage, (..) a group, *n the unit before it n times; spaces and commas mean nothing.
/// Result: the letters of each stage, or what is wrong with the string.
std::variant<std::vector<std::string>, NoStages> parse_stage_letters(const std::string& layout);

/// Transformer layers of each pipeline rank, all its virtual stages together.
std::vector<std::int64_t> layers_per_rank(const StageTable& table);

}  // namespace stowage::types
