#pragma once

#include "scenarios/reader/drafts.hpp"
#include "scenarios/reader/megatron_arguments_file.hpp"

namespace stowage::reader {

// Each reads its arguments into the draft and leaves what they do not say at Megatron's default.

void import_model(Arguments& arguments, ScenarioDraft& draft);
/// Layers whose mixer is not attention: hybrid patterns and linear attention.
void import_mixers(Arguments& arguments, ModelDraft& draft);
void import_layout(Arguments& arguments, ScenarioDraft& draft);
void import_precision(Arguments& arguments, types::Scenario& scenario);
void import_optimizer(Arguments& arguments, types::Optimizer& optimizer);
void import_recompute(Arguments& arguments, types::Recompute& recompute);
void import_cuda_graph(Arguments& arguments, types::CudaGraph& graph);
void import_offload(Arguments& arguments, types::Offload& offload);

/// Findings about arguments that a scenario cannot hold, beside what was imported.
void judge_other_arguments(Arguments& arguments, const types::Scenario& scenario, const types::Model& model);

/// Passes over, notes or refuses by name every argument that nobody asked for. Last of all.
void settle_other_arguments(Arguments& arguments);

}  // namespace stowage::reader
