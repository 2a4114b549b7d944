#include "reports/scenario_json.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "planner/search/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::reports {
namespace {

types::Scenario read_back(const types::Scenario& scenario) {
    return reader::read_scenario_text("plan.json", to_text(scenario_json(scenario)));
}

TEST(ScenarioJson, OfEveryShippedScenarioReadsBackAsTheSame) {
    int scenarios = 0;
    for (const auto& entry : std::filesystem::directory_iterator(STOWAGE_SOURCE_DIR "/scenarios")) {
        if (entry.path().extension() != ".yaml") continue;
        const types::Scenario scenario = reader::read_scenario(entry.path());
        EXPECT_EQ(scenario_json(read_back(scenario)), scenario_json(scenario)) << entry.path();
        ++scenarios;
    }
    EXPECT_GE(scenarios, 3);
}

/// What the form does not carry would show here: the same choice must cost the same to the nanosecond and the byte.
TEST(ScenarioJson, SimulatesAsTheScenarioItWasMadeFrom) {
    const types::Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    const types::OffloadChoice choice{.modules = {types::Module::core_attn}};
    const search::Outcome first = search::evaluate(search::prepare(scenario), choice);
    const search::Outcome second = search::evaluate(search::prepare(read_back(scenario)), choice);
    EXPECT_EQ(first.step_time, second.step_time);
    EXPECT_EQ(first.record_time, second.record_time);
    ASSERT_EQ(first.ranks.size(), second.ranks.size());
    for (std::size_t i = 0; i < first.ranks.size(); ++i)
        EXPECT_EQ(first.ranks[i].peak_reserved(), second.ranks[i].peak_reserved());
}

TEST(ScenarioJson, KeepsWhatDiffersFromTheDefaults) {
    types::Scenario scenario = reader::read_scenario(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    scenario.rules = types::RuleSet::core_0_18;
    scenario.offload.offload_modules = types::ModuleSet{types::Module::moe_act, types::Module::core_attn};
    scenario.offload.activation_offload_fraction = 0.3;
    scenario.model.activation = types::Activation::gelu;
    scenario.model.untie_embeddings_and_output_weights = false;
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm};
    scenario.parallel.decoder_last_pipeline_num_layers = 1;
    scenario.parallel.decoder_first_pipeline_num_layers = 3;
    scenario.limits.device_memory = types::Bytes{12345678901};
    const types::Scenario read = read_back(scenario);
    EXPECT_EQ(read.rules, types::RuleSet::core_0_18);
    EXPECT_EQ(read.offload.offload_modules, scenario.offload.offload_modules);
    EXPECT_EQ(read.offload.activation_offload_fraction, 0.3);
    EXPECT_EQ(read.model.activation, types::Activation::gelu);
    EXPECT_FALSE(read.model.untie_embeddings_and_output_weights);
    EXPECT_TRUE(read.recompute.selects(types::RecomputeModule::layernorm));
    EXPECT_EQ(read.parallel.decoder_last_pipeline_num_layers, 1);
    EXPECT_EQ(read.device_memory_limit(), types::Bytes{12345678901});
}

}  // namespace
}  // namespace stowage::reports
