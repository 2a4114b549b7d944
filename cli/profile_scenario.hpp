#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/verb.hpp"
#include "scenarios/recording/recording.hpp"
#include "scenarios/types/scenario.hpp"

namespace stowage::cli {

/// How the steps of a scenario are recorded.
struct ScenarioProfile {
    std::string input;  ///< the scenario's file
    std::optional<std::int64_t> rank;
    std::int64_t steps = 10;
    std::int64_t warmup = 3;
    std::string warmup_seconds = "3";
    std::int64_t recorded = 3;
    std::optional<std::string> gemm_table;
    bool no_groups = false;

    void add_to(CLI::App& verb);
};

/// Throws: types::InputError unless it is a scenario of layers that run here; CommandLineError.
types::Scenario read_profiled_scenario(const CommonOptions& common, const ScenarioProfile& profile);

/// Runs eager steps with nothing offloaded, one with graphs if the scenario has any, and a first iteration in which
/// everything leaves. Throws: what the GPU's library throws.
recording::Recording profile_scenario(const CommonOptions& common, const ScenarioProfile& profile,
                                      types::Scenario scenario);

}  // namespace stowage::cli
