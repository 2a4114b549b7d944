#pragma once

#include <string>

#include "scenarios/reader/drafts.hpp"
#include "scenarios/reader/read_fields.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

struct LoadedScenario;

/// Fills in a scenario's defaults and checks what needs several values together.
/// Throws: types::InputError with all errors so far.
LoadedScenario finish_scenario(Gathered& gathered, ScenarioDraft& draft);

/// Checks across values, once all were read and defaults are filled in. A check whose values could not be read is
/// passed over, so that one mistake is reported once. `model` is the draft completed; `root` is its path: "model", or
/// "" for a model file.
void check_model(Gathered& gathered, const ModelDraft& draft, const types::Model& model, const std::string& root);

/// The layout against model, batch and hardware. Conditions are Megatron's: arguments.py, parallel_state.py,
/// transformer_config.py, schedules.py and the layers' own assertions. The draft's scenario is complete.
void check_scenario(Gathered& gathered, const ScenarioDraft& draft);

/// Parts of it: how the model is cut; how ranks exchange what they cut; optimizer and precision.
void check_split(Gathered& gathered, const types::Scenario& scenario);
void check_pipeline(Gathered& gathered, const ScenarioDraft& draft);
void check_communication(Gathered& gathered, const types::Scenario& scenario);
void check_training(Gathered& gathered, const types::Scenario& scenario);

/// Whether a layer has a dense MLP.
bool has_dense_layers(const types::Model& model);

}  // namespace stowage::reader
