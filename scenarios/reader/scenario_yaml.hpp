#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "scenarios/types/scenario.hpp"

namespace stowage::reader {

/// What a scenario file says besides the scenario.
struct ScenarioFile {
    std::string hardware;             ///< path of the hardware file, as it is to stand in the file
    bool part_of_a_node = false;      ///< gpus_per_node is less than the hardware file's
    std::vector<std::string> remark;  ///< lines of the comment at its head
};

/// A scenario as the YAML file that load_scenario reads back to the same values: keys in their groups, sizes of the
/// model and the layout always, anything else where it differs from the default. The model stands inline.
std::string scenario_yaml(const types::Scenario& scenario, const ScenarioFile& file);

/// One answer for each layer as a list expression: `([0]*3+[1]*58)`.
std::string list_expression(const std::vector<bool>& layers);

/// Layers as Megatron's letters: `M-M*E`, and after each `/` those of a multi-token-prediction layer.
std::string hybrid_letters(const types::Model& model);

/// Text as a YAML scalar, in quotes where it would otherwise be something else.
std::string yaml_text(std::string_view text);

}  // namespace stowage::reader
