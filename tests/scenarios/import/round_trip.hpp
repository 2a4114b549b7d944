#pragma once

#include <gtest/gtest.h>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/reader/scenario_yaml.hpp"
#include "tests/scenarios/import/arguments.hpp"

namespace stowage::reader::testing {

/// Writes the scenario, reads it with load_scenario and compares every value.
inline void expect_reads_back(const types::Scenario& scenario, bool part_of_a_node) {
    const support::TemporaryFolder folder;
    const std::string text = scenario_yaml(scenario, ScenarioFile{shipped_h100(), part_of_a_node, {"A comment."}});
    support::write_text(folder / "scenario.yaml", text);
    SCOPED_TRACE(text);
    types::Scenario read;
    ASSERT_NO_THROW(read = read_scenario(folder / "scenario.yaml"));
    EXPECT_TRUE(read.model == scenario.model);
    EXPECT_TRUE(read.parallel == scenario.parallel);
    EXPECT_TRUE(read.batch == scenario.batch);
    EXPECT_TRUE(read.optimizer == scenario.optimizer);
    EXPECT_TRUE(read.recompute == scenario.recompute);
    EXPECT_TRUE(read.cuda_graph == scenario.cuda_graph);
    EXPECT_TRUE(read.offload == scenario.offload);
    EXPECT_TRUE(read.limits == scenario.limits);
    EXPECT_EQ(read.precision, scenario.precision);
    EXPECT_EQ(read.env, scenario.env);
    EXPECT_EQ(read.implementation, scenario.implementation);
    EXPECT_EQ(read.rules, scenario.rules);
    EXPECT_EQ(read.objective, scenario.objective);
    EXPECT_EQ(read.hardware.gpus(), scenario.hardware.gpus());
    EXPECT_EQ(read.hardware.node.name, scenario.hardware.node.name);
    EXPECT_EQ(read.hardware.node.gpus_per_node, scenario.hardware.node.gpus_per_node);
}

}  // namespace stowage::reader::testing
