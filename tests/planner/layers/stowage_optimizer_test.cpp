// The optimizer's script and states of implementation stowage.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/stage.hpp"
#include "tests/planner/layers/stowage_scenarios.hpp"

namespace stowage::layers::testing {
namespace {

using types::Scenario;

Scenario with_adam(Scenario scenario, std::int64_t ranks, bool distributed) {
    scenario.optimizer.optimizer = types::OptimizerKind::adam;
    scenario.optimizer.use_distributed_optimizer = distributed;
    scenario.parallel.data_parallel_size = ranks;
    scenario.batch.global_batch_size = 8 * ranks;
    return scenario;
}

std::vector<std::string> calls_of(const LayerScript& script) {
    std::vector<std::string> calls;
    for (const Kernel& kernel : script.kernels) calls.emplace_back(name_of(kernel.call.call));
    return calls;
}

struct Sent {
    CollectiveKind kind{};
    CommGroup group{};
    std::int64_t bytes = 0;
    friend bool operator==(const Sent&, const Sent&) = default;
};

std::map<std::string, Sent> sent_by(const LayerScript& script) {
    std::map<std::string, Sent> sent;
    for (const Collective& collective : script.collectives)
        sent[collective.name] = {collective.kind, collective.group, collective.bytes.count};
    return sent;
}

std::int64_t bytes_of(const StageLayers& stage, StowageState role) {
    for (const StateBuffer& state : stage.states)
        if (state.role == role) return state.bytes.count;
    return 0;
}

/// Elements of all places: parameters are in bf16.
std::int64_t elements_of(const StageLayers& stage) { return bytes_of(stage, StowageState::parameters) / 2; }

TEST(StowageOptimizer, WithoutOneClearsGradients) {
    const StageLayers stage = build_stage(grouped_gpt(), 0);
    EXPECT_EQ(calls_of(stage.optimizer), std::vector<std::string>{"clear"});
    EXPECT_EQ(bytes_of(stage, StowageState::master_parameters), 0);
}

TEST(StowageOptimizer, MeasuresUpdatesAndClears) {
    const StageLayers stage = build_stage(with_adam(bare_stack(), 1, false), 0);
    EXPECT_EQ(calls_of(stage.optimizer), (std::vector<std::string>{"gradient_norm", "adam_update", "clear"}));
    EXPECT_TRUE(stage.optimizer.collectives.empty());
    for (const StowageState state :
         {StowageState::master_parameters, StowageState::first_moment, StowageState::second_moment})
        EXPECT_EQ(bytes_of(stage, state), 4 * elements_of(stage));
    EXPECT_EQ(bytes_of(stage, StowageState::gradient_norm), 8);
    // Gradient, main parameter and two moments in fp32, three of them read and written; the bf16 parameter written.
    EXPECT_EQ(stage.optimizer.kernels.at(1).traffic, Bytes{(4 + 6 * 4 + 2) * elements_of(stage)});
    EXPECT_EQ(stage.optimizer.kernels.at(0).call.sizes.value, 1.0) << "Megatron's default of --clip-grad";
}

TEST(StowageOptimizer, OfOneRankReducesEverythingWithoutADistributedOne) {
    const StageLayers stage = build_stage(with_adam(bare_stack(), 4, false), 0);
    EXPECT_EQ(
        sent_by(stage.optimizer),
        (std::map<std::string, Sent>{
            {"gradients.reduce", {CollectiveKind::all_reduce, CommGroup::dense_replicas, 4 * elements_of(stage)}}}));
    EXPECT_EQ(bytes_of(stage, StowageState::first_moment), 4 * elements_of(stage));
}

TEST(StowageOptimizer, HoldsTheShareOfItsRankInWholePlaces) {
    const StageLayers stage = build_stage(with_adam(bare_stack(), 7, true), 0);
    const std::int64_t elements = elements_of(stage);
    const std::int64_t owned = (elements / 7 + 127) / 128 * 128;
    EXPECT_NE(elements % (7 * 128), 0) << "the share is rounded";
    EXPECT_EQ(bytes_of(stage, StowageState::master_parameters), 4 * owned);
    EXPECT_EQ(stage.optimizer.kernels.at(1).call.sizes.rows, owned);
    EXPECT_EQ(sent_by(stage.optimizer),
              (std::map<std::string, Sent>{
                  {"gradients.reduce", {CollectiveKind::reduce_scatter, CommGroup::dense_replicas, 4 * elements}},
                  {"optimizer.reduce_norm", {CollectiveKind::all_reduce, CommGroup::dense_replicas, 4}},
                  {"optimizer.gather", {CollectiveKind::all_gather, CommGroup::dense_replicas, 2 * elements}}}));
    EXPECT_EQ(bytes_of(stage, StowageState::gradients), 4 * elements) << "the whole, as it is added to";
}

TEST(StowageOptimizer, OfExpertsSharesThemWithTheRanksThatHaveThemToo) {
    // Eight data-parallel ranks, experts over four: two ranks hold the same.
    const StageLayers stage = build_stage(with_adam(moe_slice(), 8, true), 0);
    std::int64_t experts = 0;
    for (const ChunkLayers& chunk : stage.chunks)
        for (const std::size_t script : chunk.order)
            for (const Parameter& parameter : stage.scripts[script].parameters)
                if (parameter.kind == ParameterKind::expert) experts += parameter.elements();
    // Three layers with 6 experts [400 x 384] and [384 x 200].
    ASSERT_EQ(experts, 3 * 6 * (400 * 384 + 384 * 200));
    const std::int64_t dense = elements_of(stage) - experts;
    EXPECT_EQ(stage.optimizer.kernels.at(1).call.sizes.rows, (dense / 8 + 127) / 128 * 128 + experts / 2);
    const auto sent = sent_by(stage.optimizer);
    EXPECT_EQ(sent.at("gradients.reduce_experts"),
              (Sent{CollectiveKind::reduce_scatter, CommGroup::expert_replicas, 2 * experts}));
    EXPECT_EQ(sent.at("gradients.reduce"),
              (Sent{CollectiveKind::reduce_scatter, CommGroup::dense_replicas, 2 * dense}));
}

}  // namespace
}  // namespace stowage::layers::testing
