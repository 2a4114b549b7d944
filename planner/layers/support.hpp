#pragma once

#include <string>
#include <vector>

#include "scenarios/types/scenario.hpp"

namespace stowage::layers {

/// Something that a scenario asks for and the layers of its implementation lack.
struct Unsupported {
    std::string path;     ///< the key that asks for it, such as `parallel.context_parallel_size`
    std::string feature;  ///< in the words of the scenario
    std::string hint;     ///< what to ask for instead
};

/// All of them; empty if the scenario can be built.
std::vector<Unsupported> unsupported_features(const types::Scenario& scenario);

/// Accepts what build_stage can build exactly; everything else is named.
/// Throws: types::UnsupportedError listing all missing features of the scenario at once.
void require_supported(const types::Scenario& scenario);

}  // namespace stowage::layers
