#pragma once

#include <filesystem>
#include <string>

#include "scenarios/reader/source_map.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

/// A scenario and where each of its keys stood.
struct LoadedScenario {
    types::Scenario scenario;
    SourceMap where;
};

/// Reads a scenario file with the model and hardware files it refers to (relative to its folder), fills in defaults and
/// checks that sizes divide as the layout needs. The result is safe to compute with: positive sizes, products that fit
/// 64 bits, a layout that covers the hardware.
/// What it leaves to the planner's rules: whether the offload policy, recomputation and graph scope are legal together.
/// Throws: types::InputError with every error of all the files, each as file:line:column, path, line, caret and hint.
/// Cost: milliseconds; linear in the files.
LoadedScenario load_scenario(const std::filesystem::path& path);

/// The same without the source map.
types::Scenario read_scenario(const std::filesystem::path& path);

/// Reads a scenario from text, such as the one that a plan carries; `name` stands for the file in messages, and files
/// it refers to are looked for in the folder of `name`. The scenario has no name. Throws: types::InputError.
types::Scenario read_scenario_text(const std::string& name, const std::string& text);

/// Reads a model file (schema stowage/model/1) with Megatron's defaults filled in. Throws: types::InputError.
types::Model read_model(const std::filesystem::path& path);

/// Reads a hardware file (schema stowage/hardware/1). Throws: types::InputError.
types::Node read_hardware(const std::filesystem::path& path);

}  // namespace stowage::reader
