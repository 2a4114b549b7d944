#include "planner/rules/legality.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "planner/rules/sites.hpp"

namespace stowage::rules {
namespace {

using types::Module;
using types::ModuleSet;
using types::OffloadChoice;
using types::RecomputeModule;
using types::RuleSet;
using types::Scenario;

/// A small model with four experts in every layer, in a job that keeps every rule.
Scenario moe_scenario(RuleSet rules = RuleSet::main_2026_08) {
    Scenario scenario;
    scenario.rules = rules;
    scenario.env["NVTE_CPU_OFFLOAD_V1"] = "1";
    scenario.model.num_layers = 4;
    scenario.model.num_experts = 4;
    scenario.model.moe_router_topk = 2;
    scenario.batch.global_batch_size = 4;
    return scenario;
}

Scenario dense_scenario(RuleSet rules = RuleSet::main_2026_08) {
    Scenario scenario = moe_scenario(rules);
    scenario.model.num_experts = 0;
    return scenario;
}

void recompute(Scenario& scenario, RecomputeModule module) {
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {module};
}

std::vector<std::string> broken(const std::vector<Finding>& findings) {
    std::vector<std::string> ids;
    for (const Finding& finding : findings) ids.emplace_back(finding.rule);
    return ids;
}

/// One configuration and what two rule sets say about it.
struct LegalityCase {
    std::string name;
    OffloadChoice choice;
    std::function<void(Scenario&)> change;
    std::vector<std::string> on_main;
    Verdict verdict_on_main;
    std::vector<std::string> on_pr_3219;
    Verdict verdict_on_pr_3219;
};
void PrintTo(const LegalityCase& one, std::ostream* out) { *out << one.name; }

void nothing(Scenario&) {}
using V = Verdict;

// The verdicts follow from Megatron-LM's own checks (main of August 2026, pull request 3219); see each rule's source.
// fused_group_mlp and gdp_qkv have no site in this model, hence D10 beside the rule in question.
const std::vector<LegalityCase> kCases = {
    {"attention", {.modules = {Module::core_attn, Module::attn_proj}}, nothing, {}, V::legal, {}, V::legal},
    {"projection_alone", {.modules = {Module::attn_proj}}, nothing, {"O4"}, V::illegal, {"O4"}, V::illegal},
    {"gated_delta_product",
     {.modules = {Module::gdp_qkv}},
     nothing,
     {"D10"},
     V::legal_with_changes,
     {"O3", "D10"},
     V::illegal},
    {"fused_group_without_fuser",
     {.modules = {Module::fused_group_mlp}},
     nothing,
     {"O10", "D10"},
     V::illegal,
     {"O3", "D10"},
     V::illegal},
    {"fused_group_with_a_part",
     {.modules = {Module::fused_group_mlp, Module::moe_act}},
     nothing,
     {"O10", "O11", "D10"},
     V::illegal,
     {"O3", "D10"},
     V::illegal},
    {"experts_under_a_checkpoint",
     {.modules = {Module::moe_act}},
     [](Scenario& s) { recompute(s, RecomputeModule::moe); },
     {"O6"},
     V::illegal,
     {"O6"},
     V::illegal},
    {"attention_beside_a_checkpoint",
     {.modules = {Module::core_attn}},
     [](Scenario& s) { recompute(s, RecomputeModule::moe); },
     {},
     V::legal,
     {},
     V::legal},
    {"fraction_above_one",
     {.modules = {Module::core_attn}, .fraction = 1.01},
     nothing,
     {"O8"},
     V::illegal,
     {"O8"},
     V::illegal},
    {"fraction_zero", {.modules = {Module::core_attn}, .fraction = 0}, nothing, {"H3"}, V::hazard, {}, V::legal},
    {"fraction_zero_of_one_microbatch",
     {.modules = {Module::core_attn}, .fraction = 0},
     [](Scenario& s) { s.batch.global_batch_size = 1; },
     {},
     V::legal,
     {},
     V::legal},
    {"hyper_connections",
     {.modules = {Module::qkv_linear}},
     [](Scenario& s) { recompute(s, RecomputeModule::mhc); },
     {"O12"},
     V::illegal,
     {},
     V::legal},
    {"gated_delta_product_recomputed",
     {.modules = {Module::gdp_qkv}},
     [](Scenario& s) { recompute(s, RecomputeModule::gdp_in_proj); },
     {"O5", "D10"},
     V::illegal,
     {"O3", "D10"},
     V::illegal},
    {"negative_minimum",
     {.modules = {Module::core_attn}, .min_offloaded_tensor_size = -1},
     nothing,
     {"O7"},
     V::illegal,
     {"O7"},
     V::illegal},
    {"negative_delta",
     {.modules = {Module::core_attn}, .delta_bytes_across_pp_ranks = -1},
     nothing,
     {"O9"},
     V::illegal,
     {"O9"},
     V::illegal},
    {"no_environment_given",
     {.modules = {Module::core_attn}},
     [](Scenario& s) { s.env.clear(); },
     {},
     V::legal,
     {},
     V::legal},
    {"environment_without_the_variable",
     {.modules = {Module::core_attn}},
     [](Scenario& s) {
         s.env = {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
     },
     {"O17"},
     V::illegal,
     {"O17"},
     V::illegal},
    {"environment_without_it_and_nothing_offloaded",
     {},
     [](Scenario& s) {
         s.env = {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
     },
     {},
     V::legal,
     {},
     V::legal},
    {"negative_cap",
     {.modules = {Module::core_attn}},
     [](Scenario& s) { s.offload.fine_grained_offloading_max_inflight_offloads = -1; },
     {"O18"},
     V::hazard,
     {},
     V::legal},
    {"delay_without_graphs",
     {.modules = {Module::expert_fc1}},
     [](Scenario& s) { s.offload.delay_offload_until_cuda_graph = true; },
     {"O19"},
     V::legal_with_changes,
     {"O19"},
     V::legal_with_changes},
    {"delay_without_offload",
     {},
     [](Scenario& s) { s.offload.delay_offload_until_cuda_graph = true; },
     {"O19"},
     V::legal_with_changes,
     {"O19"},
     V::legal_with_changes},
    {"norm_inside_the_linear",
     {.modules = {Module::attn_norm}},
     nothing,
     {"D10"},
     V::legal_with_changes,
     {"D10"},
     V::legal_with_changes},
    {"norm_of_some_layers",
     {.modules = {Module::mlp_norm}},
     [](Scenario& s) {
         s.model.moe_layer_freq = {false, true, true, true};
     },
     {"D6"},
     V::legal_with_changes,
     {"D6"},
     V::legal_with_changes},
    {"experts_of_a_dense_model",
     {.modules = {Module::expert_fc1, Module::moe_act}},
     [](Scenario& s) { s.model.num_experts = 0; },
     {"D10"},
     V::legal_with_changes,
     {"D10"},
     V::legal_with_changes},
};

class Legality : public testing::TestWithParam<LegalityCase> {};

TEST_P(Legality, IsJudgedAsMegatronDoes) {
    const LegalityCase& one = GetParam();
    Scenario main = moe_scenario(RuleSet::main_2026_08);
    Scenario older = moe_scenario(RuleSet::pr_3219);
    one.change(main);
    one.change(older);
    const auto on_main = check(main, one.choice);
    EXPECT_EQ(broken(on_main), one.on_main);
    EXPECT_EQ(worst(on_main), one.verdict_on_main);
    const auto on_older = check(older, one.choice);
    EXPECT_EQ(broken(on_older), one.on_pr_3219);
    EXPECT_EQ(worst(on_older), one.verdict_on_pr_3219);
}

INSTANTIATE_TEST_SUITE_P(Cases, Legality, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<LegalityCase>& one) { return one.param.name; });

void expect_sentence(std::string_view sentence, std::string_view rule) {
    ASSERT_FALSE(sentence.empty()) << rule;
    EXPECT_EQ(sentence.back(), '.') << rule;
    EXPECT_EQ(std::count(sentence.begin(), sentence.end(), '\n'), 0) << rule;
}

TEST(Rules, SayWhatIsWrongAndWhatToChangeInWholeSentences) {
    for (const Rule& rule : rules()) {
        expect_sentence(rule.reason, rule.id);
        const bool silent = rule.severity == Severity::note && rule.nearest_legal.empty();  // nothing to change
        if (!silent) expect_sentence(rule.nearest_legal, rule.id);
        EXPECT_FALSE(rule.source.empty()) << rule.id;
    }
}

TEST(Rules, HaveOneEntryAnIdInEachRuleSet) {
    for (const auto& [set, name] : types::enum_names<RuleSet>()) {
        std::set<std::string_view> seen;
        for (const Rule& rule : rules()) {
            if (!rule.sets.contains(set)) continue;
            EXPECT_TRUE(seen.insert(rule.id).second) << rule.id << " twice in " << name;
        }
    }
}

TEST(Rules, NameTheOffendingSetting) {
    const auto findings = check(moe_scenario(), {.modules = {Module::attn_proj}});
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(
        findings[0].message,
        "offload_modules has attn_proj and not core_attn: The projection's input is the attention's output, which "
        "the backward of the attention needs on the device.");
    EXPECT_EQ(findings[0].nearest_legal, "Add core_attn to offload_modules, or drop attn_proj.");
}

Scenario own_layers() {
    Scenario scenario = dense_scenario();
    scenario.implementation = types::Implementation::stowage;
    return scenario;
}

/// Which rules Megatron's layers and our own break with these modules offloaded.
std::vector<std::string> broken_by_either(Scenario scenario, types::Implementation implementation, ModuleSet modules) {
    scenario.implementation = implementation;
    return broken(check(scenario, {.modules = modules}));
}

// Attention run again saves its input, which is what its group moves, in the group.
TEST(Rules, LetOurOwnLayersOffloadAttentionThatRunsAgain) {
    Scenario scenario = own_layers();
    recompute(scenario, RecomputeModule::core_attn);
    EXPECT_EQ(broken_by_either(scenario, types::Implementation::stowage, {Module::core_attn}),
              std::vector<std::string>{});
    EXPECT_EQ(broken_by_either(scenario, types::Implementation::megatron, {Module::core_attn}),
              std::vector<std::string>{"R12"});
}

// Megatron's layers go by the list of graph modules even where nothing is captured: H5 beside D1 and D3. Our own lose
// the norms only to a graph that there is.
TEST(Rules, TakeNothingFromOurOwnLayersForGraphsThatAreOnlyListed) {
    Scenario scenario = own_layers();
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn};
    const ModuleSet norms{Module::attn_norm, Module::mlp_norm};
    EXPECT_EQ(broken_by_either(scenario, types::Implementation::stowage, norms), std::vector<std::string>{});
    const auto of_megatron = broken_by_either(scenario, types::Implementation::megatron, norms);
    for (const char* rule : {"D1", "D3", "H5"})
        EXPECT_EQ(std::count(of_megatron.begin(), of_megatron.end(), rule), 1) << rule;
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    const auto captured = broken_by_either(scenario, types::Implementation::stowage, norms);
    for (const char* rule : {"D1", "D3"}) EXPECT_EQ(std::count(captured.begin(), captured.end(), rule), 1) << rule;
    EXPECT_EQ(std::count(captured.begin(), captured.end(), "H5"), 0);
}

TEST(Rules, DifferOnDevWhereDevDiffers) {
    Scenario scenario = moe_scenario(RuleSet::dev);
    recompute(scenario, RecomputeModule::mhc);
    EXPECT_EQ(worst(check(scenario, {.modules = {Module::qkv_linear}})), Verdict::legal);
    EXPECT_EQ(broken(check(scenario, {.modules = {Module::mlp_norm}})), std::vector<std::string>{"O12"});
    Scenario cap = moe_scenario(RuleSet::dev);
    cap.offload.fine_grained_offloading_max_inflight_offloads = -1;
    EXPECT_EQ(worst(check(cap, {.modules = {Module::core_attn}})), Verdict::illegal);
}

TEST(Rules, KnowTheModulesOfEachRuleSet) {
    // core-0.18 came before fused_group_mlp, core-0.19 before gdp_qkv.
    const std::map<RuleSet, int> counts = {{RuleSet::pr_3219, 7},
                                           {RuleSet::core_0_18, 7},
                                           {RuleSet::core_0_19, 8},
                                           {RuleSet::main_2026_08, 9},
                                           {RuleSet::dev, 9}};
    for (const auto& [set, count] : counts) EXPECT_EQ(known_modules(set).size(), count) << types::name_of(set);
}

TEST(LegalSubsets, LeaveOutTheIllegalAndTheEmptyHanded) {
    const ModuleSet candidates{Module::attn_norm, Module::core_attn, Module::attn_proj, Module::expert_fc1};
    // attn_norm has no site. Of the eight subsets of the rest, two have attn_proj without core_attn.
    const std::vector<ModuleSet> expected = {
        {},
        {Module::core_attn},
        {Module::core_attn, Module::attn_proj},
        {Module::expert_fc1},
        {Module::core_attn, Module::expert_fc1},
        {Module::core_attn, Module::attn_proj, Module::expert_fc1},
    };
    EXPECT_EQ(legal_subsets(moe_scenario(), candidates), expected);
    EXPECT_EQ(legal_subsets(dense_scenario(), candidates).size(), 3U);
}

TEST(LegalSubsets, OfAJobThatMayNotOffloadAreTheEmptyOne) {
    Scenario scenario = moe_scenario();
    scenario.env = {{"CUDA_DEVICE_MAX_CONNECTIONS", "1"}};
    EXPECT_EQ(legal_subsets(scenario, {Module::core_attn, Module::expert_fc1}), std::vector<ModuleSet>{ModuleSet{}});
}

}  // namespace
}  // namespace stowage::rules
