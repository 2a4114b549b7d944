#include "planner/rules/nearest_legal.hpp"

#include <gtest/gtest.h>

#include <random>

#include "planner/rules/setting_changes.hpp"
#include "tests/support/seed.hpp"

namespace stowage::rules {
namespace {

using types::CudaGraphImpl;
using types::CudaGraphModule;
using types::Module;
using types::Scenario;
using Words = std::vector<std::string>;

Scenario job() {
    Scenario scenario;
    scenario.env["NVTE_CPU_OFFLOAD_V1"] = "1";
    scenario.model.num_layers = 8;
    scenario.model.num_experts = 4;
    scenario.model.moe_router_topk = 2;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.batch.global_batch_size = 4;
    return scenario;
}

std::vector<Words> changes(const Scenario& scenario, const types::OffloadChoice& choice) {
    std::vector<Words> all;
    for (const LegalNeighbour& one : nearest_legal(scenario, choice)) all.push_back(one.changes);
    return all;
}

TEST(NearestLegal, OfALegalConfigurationIsNothing) {
    EXPECT_TRUE(nearest_legal(job(), {.modules = {Module::core_attn}}).empty());
}

TEST(NearestLegal, ListsTheWaysWithTheFewestChanges) {
    EXPECT_EQ(changes(job(), {.modules = {Module::attn_proj}}),
              (std::vector<Words>{
                  {"add core_attn to offload_modules"}, {"drop attn_proj from offload_modules"}, {"offload nothing"}}));
}

TEST(NearestLegal, MendsAGraphWithoutGivingItUp) {
    Scenario scenario = job();
    scenario.cuda_graph = {.cuda_graph_impl = CudaGraphImpl::transformer_engine,
                           .cuda_graph_modules = {CudaGraphModule::attn, CudaGraphModule::moe_preprocess}};
    const auto nearest = changes(scenario, {.modules = {Module::core_attn}});
    ASSERT_FALSE(nearest.empty());
    EXPECT_EQ(nearest.front(), Words{"add moe_router to cuda_graph_modules"});
}

// The whole layer of a local graph around attention: other modules and parts of the layer, or another implementation.
TEST(NearestLegal, MendsTwoRulesWithOneChangeWhereThereIsOne) {
    Scenario scenario = job();
    scenario.cuda_graph.cuda_graph_impl = CudaGraphImpl::local;
    const types::OffloadChoice choice{.modules = {Module::core_attn}};
    EXPECT_EQ(check(scenario, choice).size(), 2U);  // X1 and X2
    EXPECT_EQ(
        changes(scenario, choice),
        (std::vector<Words>{{"drop core_attn from offload_modules"}, {"leave cuda_graph out"}, {"offload nothing"}}));
}

TEST(NearestLegal, TakesTwoChangesWhereOneIsNotEnough) {
    Scenario scenario = job();
    scenario.parallel.delay_wgrad_compute = true;  // without overlap: G15
    const types::OffloadChoice choice{.modules = {Module::core_attn}, .min_offloaded_tensor_size = -1};
    EXPECT_EQ(changes(scenario, choice).front(),
              (Words{"set min_offloaded_tensor_size to 0", "set delay_wgrad_compute to false"}));
}

template <class Enum>
Enum any(std::mt19937_64& random) {
    const auto names = types::enum_names<Enum>();
    return names[random() % names.size()].first;
}

/// Any configuration, most of them illegal.
Configuration any_configuration(std::mt19937_64& random) {
    const auto pick = [&](std::uint64_t count) { return static_cast<std::int64_t>(random() % count); };
    Configuration c{job(), {}};
    Scenario& scenario = c.scenario;
    scenario.rules = any<types::RuleSet>(random);
    scenario.precision = any<types::Precision>(random);
    scenario.model.num_experts = 4 * pick(3);
    scenario.model.multi_latent_attention = pick(2) == 0;
    scenario.model.attention_dropout = pick(3) == 0 ? 0.1 : 0;
    if (pick(2) == 0) scenario.model.moe_layer_freq = {false, true, true, true, true, true, true, true};
    scenario.parallel.expert_model_parallel_size = 1 + pick(2);
    scenario.parallel.pipeline_model_parallel_size = 1 + pick(2);
    scenario.parallel.overlap_moe_expert_parallel_comm = pick(4) == 0;
    scenario.parallel.delay_wgrad_compute = pick(6) == 0;
    scenario.recompute.recompute_granularity = any<types::RecomputeGranularity>(random);
    for (std::int64_t i = pick(3); i > 0; --i)
        scenario.recompute.recompute_modules.push_back(any<types::RecomputeModule>(random));
    scenario.cuda_graph.cuda_graph_impl = any<CudaGraphImpl>(random);
    for (std::int64_t i = pick(4); i > 0; --i)
        scenario.cuda_graph.cuda_graph_modules.push_back(any<CudaGraphModule>(random));
    scenario.cuda_graph.cuda_graph_warmup_steps = pick(3);
    for (std::int64_t i = pick(5); i > 0; --i) c.choice.modules.insert(any<Module>(random));
    c.choice.fraction = static_cast<double>(pick(14) - 1) / 10;
    if (pick(3) == 0) c.choice.max_inflight_offloads = pick(4) - 1;
    c.choice.delay_until_cuda_graph = pick(4) == 0;
    return c;
}

// Whatever is asked, there is an answer, and a verdict other than legal comes with a rule that gives it.
TEST(NearestLegal, IsFoundForAnyConfigurationAndJudgedByTheSameRules) {
    std::mt19937_64 random(tests::property_seed(20261129));
    int illegal = 0;
    int mended = 0;
    for (int round = 0; round < 400; ++round) {
        const Configuration c = any_configuration(random);
        const auto findings = check(c.scenario, c.choice);
        const Verdict verdict = worst(findings);
        for (const Finding& finding : findings) ASSERT_FALSE(finding.message.empty()) << finding.rule;
        const auto nearest = nearest_legal(c.scenario, c.choice);
        if (verdict < Verdict::hazard) {
            ASSERT_TRUE(nearest.empty());
            continue;
        }
        ++illegal;
        mended += nearest.empty() ? 0 : 1;
        for (const LegalNeighbour& one : nearest) ASSERT_LT(one.verdict, Verdict::hazard);
    }
    EXPECT_GT(illegal, 200);
    EXPECT_GT(mended, illegal / 2);
}

}  // namespace
}  // namespace stowage::rules
