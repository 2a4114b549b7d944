#include "planner/rules/sites.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/rules/legality.hpp"

namespace stowage::rules {
namespace {

using types::FeedForward;
using types::Mixer;
using types::Module;
using types::ModuleSet;
using types::Scenario;

/// A hybrid model "M*EG": a Mamba mixer, attention, experts, a gated delta net, each a layer of its own.
Scenario hybrid() {
    Scenario scenario;
    scenario.env["NVTE_CPU_OFFLOAD_V1"] = "1";
    scenario.model.num_layers = 4;
    scenario.model.num_experts = 4;
    scenario.model.moe_router_topk = 2;
    scenario.model.mixers = {Mixer::mamba, Mixer::attention, Mixer::none, Mixer::gated_delta_net};
    scenario.model.feed_forward = {FeedForward::none, FeedForward::none, FeedForward::moe, FeedForward::none};
    return scenario;
}

ModuleSet sites_of(const types::Model& model, std::int64_t layer) {
    ModuleSet sites;
    for (const auto& [module, name] : types::enum_names<Module>())
        if (has_site(model, module, layer)) sites.insert(module);
    return sites;
}

TEST(Sites, OfAHybridLayerAreThoseOfTheHalfItHas) {
    const types::Model model = hybrid().model;
    EXPECT_EQ(sites_of(model, 0), ModuleSet{});
    EXPECT_EQ(sites_of(model, 1), (ModuleSet{Module::qkv_linear, Module::core_attn, Module::attn_proj}));
    EXPECT_EQ(sites_of(model, 2), (ModuleSet{Module::mlp_norm, Module::expert_fc1, Module::moe_act}));
    EXPECT_EQ(sites_of(model, 3), ModuleSet{});
}

// gdp_qkv belongs to the gated delta product, which is neither of the two: accepted, and without a site.
TEST(Sites, OfTheGatedDeltaProductAreInNoLayer) {
    const auto findings = check(hybrid(), {.modules = {Module::gdp_qkv}});
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().rule, "D10");
}

// A norm fused into the first linear of a dense MLP is what D6 is about; layers without an MLP have no such norm.
TEST(Sites, OfTheNormBeforeTheMlpAreNotMissingWhereThereIsNone) {
    EXPECT_TRUE(check(hybrid(), {.modules = {Module::mlp_norm}}).empty());
    Scenario with_mlp = hybrid();
    with_mlp.model.feed_forward[0] = FeedForward::dense;
    with_mlp.model.mixers[0] = Mixer::none;
    const auto findings = check(with_mlp, {.modules = {Module::mlp_norm}});
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings.front().rule, "D6");
}

}  // namespace
}  // namespace stowage::rules
