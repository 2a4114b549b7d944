#pragma once

#include "planner/layers/layer_script.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// All that pipeline rank `pipeline_rank` (from 0) runs and holds under implementation `megatron`: PyTorch and
/// Transformer Engine as Megatron-LM uses them, cuDNN's fused attention, gradient accumulation fused into the linears.
/// Layers of one kind share one script; each chunk runs through them in its order.
/// Throws: types::UnsupportedError naming all features that are missing; std::logic_error if the rank does not exist.
StageLayers build_megatron_stage(const types::Scenario& scenario, std::int64_t pipeline_rank);

/// The parameters of one virtual stage in model order, one entry for each tensor of each layer.
std::vector<Parameter> chunk_parameters(const StageLayers& stage, const ChunkLayers& chunk);
/// That of every virtual stage.
std::vector<std::vector<Parameter>> parameters_by_chunk(const StageLayers& stage);
/// The same of all virtual stages of the rank, one after another.
std::vector<Parameter> stage_parameters(const StageLayers& stage);

}  // namespace stowage::layers
