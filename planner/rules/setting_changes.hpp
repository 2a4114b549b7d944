#pragma once

#include <string>
#include <vector>

#include "scenarios/types/offload_choice.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::rules {

/// A job and its policy.
struct Configuration {
    types::Scenario scenario;
    types::OffloadChoice choice;
};

/// A configuration with one setting changed, and the change in words.
struct ChangedConfiguration {
    std::string words;
    Configuration configuration;
};

/// Every change of one setting that can mend a rule; those that give up the least come first.
std::vector<ChangedConfiguration> changes_of(const Configuration& given);

}  // namespace stowage::rules
