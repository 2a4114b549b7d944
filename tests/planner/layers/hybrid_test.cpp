#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "planner/layers/inventory.hpp"
#include "planner/layers/mamba_scan.hpp"
#include "planner/layers/megatron_stage.hpp"
#include "planner/layers/mtp.hpp"
#include "planner/layers/support.hpp"
#include "planner/layers/transformer_layer.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/planner/layers/replay.hpp"
#include "tests/planner/layers/scenarios.hpp"

// Layers of hybrid models: Mamba-2 mixers, gated delta nets, and layers of one half only. Parameter totals of the
// published models: published_parameters_test.cpp.

namespace stowage::layers::testing {
namespace {

using types::FeedForward;
using types::Mixer;
using types::Scenario;

constexpr LayerTraits kMamba{Mixer::mamba, FeedForward::none, false};
constexpr LayerTraits kDelta{Mixer::gated_delta_net, FeedForward::none, false};
constexpr LayerTraits kAttention{Mixer::attention, FeedForward::none, false};
constexpr LayerTraits kExperts{Mixer::none, FeedForward::moe, false};
constexpr LayerTraits kMlp{Mixer::none, FeedForward::dense, false};

Scenario with_model(const std::string& file) {
    Scenario scenario = qwen3_30b_a3b();
    scenario.model =
        reader::read_model(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios" / "models" / (file + ".yaml"));
    scenario.parallel = {};
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 64, .seq_length = 8192};
    return scenario;
}

Scenario nemotron_nano() { return with_model("nemotron3-nano-30b-a3b"); }
Scenario nemotron_super() { return with_model("nemotron3-super-120b-a12b"); }

Scenario qwen3_next() {
    Scenario scenario = with_model("qwen3-next-80b-a3b");
    scenario.batch.seq_length = 4096;
    return scenario;
}

/// The first layers of the model, the others cut off.
Scenario first_layers(Scenario scenario, std::size_t layers) {
    types::Model& model = scenario.model;
    model.num_layers = static_cast<std::int64_t>(layers);
    model.mixers.resize(layers);
    model.feed_forward.resize(layers);
    if (!model.moe_layer_freq.empty()) model.moe_layer_freq.resize(layers);
    return scenario;
}

LayerScript layer(const Scenario& scenario, const LayerTraits& traits) {
    return transformer_layer(dimensions_of(scenario), scenario, traits);
}

std::int64_t saved(const Scenario& scenario, const LayerTraits& traits) {
    return saved_bytes(layer(scenario, traits)).count;
}

std::int64_t parameters(const LayerScript& script) {
    std::int64_t total = 0;
    for (const Parameter& parameter : script.parameters) total += parameter.elements();
    return total;
}

std::vector<Module> commits(const LayerScript& script) {
    std::vector<Module> modules;
    for (const Step& step : script.forward)
        if (step.kind == StepKind::commit) modules.push_back(step.module);
    return modules;
}

void expect_nothing_left(const Scenario& scenario, std::int64_t rank, const std::string& what) {
    const StageLayers stage = build_megatron_stage(scenario, rank);
    Replay replay(stage);
    replay.forward();
    replay.backward();
    EXPECT_TRUE(replay.faults().empty()) << what << ": " << replay.faults().front();
    EXPECT_EQ(replay.live(), Bytes{0}) << what << ": " << replay.alive().front();
}

bool refuses(const Scenario& scenario, const std::string& feature) {
    const std::vector<Unsupported> found = unsupported_features(scenario);
    return std::any_of(found.begin(), found.end(),
                       [&](const Unsupported& unsupported) { return unsupported.feature == feature; });
}

TEST(HybridLayer, HasADistinctNameForEachKind) {
    std::set<std::string> names;
    for (const Mixer mixer : {Mixer::attention, Mixer::mamba, Mixer::gated_delta_net})
        for (const FeedForward half : {FeedForward::dense, FeedForward::moe, FeedForward::none})
            names.insert(name_of({mixer, half, false}));
    for (const FeedForward half : {FeedForward::dense, FeedForward::moe})
        names.insert(name_of({Mixer::none, half, false}));
    names.insert(name_of({Mixer::attention, FeedForward::dense, true}));
    EXPECT_EQ(names.size(), 12U);
}

// h 2688; 64 heads of 64, 8 groups, state 128: inner 4096, convolved 4096 + 2*8*128 = 6144, in 4096 + 6144 + 64 =
// 10304. norm 2688, in 2688*10304 = 27,697,152, taps 4*6144 = 24,576 and bias 6144, step bias, A and D 192, norm 4096,
// out 4096*2688 = 11,010,048.
TEST(MambaLayer, HasTheParametersOfNemotronNano) {
    EXPECT_EQ(parameters(layer(nemotron_nano(), kMamba)), 2688 + 27'697'152 + 24'576 + 6144 + 192 + 4096 + 11'010'048);
}

// Two tensor ranks: the norm before stays whole, everything else is halved.
TEST(MambaLayer, IsSplitOverTensorRanks) {
    Scenario scenario = nemotron_nano();
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    EXPECT_EQ(parameters(layer(scenario, kMamba)), 2688 + (27'697'152 + 24'576 + 6144 + 192 + 4096 + 11'010'048) / 2);
}

// 8192 tokens, 16 bits: input and normed input 8192*2688*2 = 44,040,192 each and 4 bytes a token; packed 8192*10304*2 =
// 168,820,736; output before the gate, after it and after the norm 8192*4096*2 = 67,108,864 each; 8 fp32 numbers a
// token for the norm; three fp32 vectors of 64.
constexpr std::int64_t kMambaSaved = 2 * 44'040'192 + 32'768 + 168'820'736 + 3 * 67'108'864 + 262'144 + 3 * 256;

TEST(MambaLayer, KeepsThePackedProjectionAndTheOutputThreeTimes) {
    EXPECT_EQ(kMambaSaved, 458'523'392);
    EXPECT_EQ(saved(nemotron_nano(), kMamba), kMambaSaved);
}

// Two sequences: transposed copies take the place of the originals, so that only the three vectors are not doubled.
TEST(MambaLayer, KeepsTransposedCopiesOfSeveralSequences) {
    Scenario scenario = nemotron_nano();
    scenario.batch.micro_batch_size = 2;
    EXPECT_EQ(saved(scenario, kMamba), 2 * kMambaSaved - 3 * 256);
}

// Two tensor ranks with sequence parallelism: input and normed input are halved in tokens, the rest in width.
TEST(MambaLayer, KeepsHalfOnEachOfTwoTensorRanks) {
    Scenario scenario = nemotron_nano();
    scenario.parallel.tensor_model_parallel_size = 2;
    scenario.parallel.sequence_parallel = true;
    EXPECT_EQ(saved(scenario, kMamba), kMambaSaved / 2);
}

// 16 context-parallel ranks and 8 groups: each rank has 4 of the 64 heads and a group that another rank has too. 512
// tokens outside; inside 8192 tokens of 4*64 = 256 gate, 256 + 2*128 convolved and 4 steps: 772 wide. Vectors of 4
// heads and slices of the convolution's parameters, 512*5, are kept too.
TEST(MambaLayer, RepeatsGroupsOverContextParallelRanks) {
    Scenario scenario = nemotron_nano();
    scenario.parallel.context_parallel_size = 16;
    const std::int64_t outside = 2 * 512 * 2688 * 2 + 512 * 4 + 2 * 512 * 4096 * 2 + 512 * 8 * 4;
    const std::int64_t inside = 8192 * 772 * 2 + 8192 * 256 * 2 + 3 * 4 * 4 + 512 * 5 * 2;
    EXPECT_EQ(saved(scenario, kMamba), outside + inside);
}

// Each way: gate and x 4096 wide, B and C 8*128 each sent twice, 64 steps; then the output, 4096 wide. 512 tokens.
TEST(MambaLayer, ExchangesHeadsForTokensBothWays) {
    Scenario scenario = nemotron_nano();
    scenario.parallel.context_parallel_size = 16;
    const LayerScript script = layer(scenario, kMamba);
    std::vector<std::int64_t> sent;
    for (const Step& step : script.forward)
        if (step.kind == StepKind::collective) {
            EXPECT_EQ(script.collectives[step.detail].kind, CollectiveKind::all_to_all);
            EXPECT_EQ(script.collectives[step.detail].group, CommGroup::context);
            sent.push_back(script.collectives[step.detail].bytes.count);
        }
    const std::int64_t row = 512 * 2;
    EXPECT_EQ(sent, (std::vector<std::int64_t>{4096 * row, 4096 * row, 2048 * row, 2048 * row, 64 * row, 4096 * row}));
}

// in_proj 2*8192*2688*10304 and out_proj 2*8192*4096*2688; the scan's 64 chunks: into and out of the states 2*2*8192*
// 4096*128, C B^T 2*8192*128*8*128, inside the chunks 8192*128*4096.
TEST(MambaLayer, CountsTheScansOperations) {
    const double linears = 2.0 * 8192 * 2688 * (10304 + 4096);
    const double scan = 4.0 * 8192 * 4096 * 128 + 2.0 * 8192 * 128 * 8 * 128 + 8192.0 * 128 * 4096;
    EXPECT_DOUBLE_EQ(flops(layer(nemotron_nano(), kMamba), Phase::forward), linears + scan);
}

// One scan of a Nemotron 3 Nano layer, 8192 tokens, measured on an H200 (PyTorch 2.11, mamba-ssm 2.3.2, the convolution
// as a copy): kept 128.001 MiB beside the input, peaks of 326.001 MiB over the start of the forward and of 842.016 MiB
// over the start of the backward, the output's gradient not counted.
TEST(MambaScan, PeaksWhereTheKernelsWereMeasuredTo) {
    const Scenario scenario = nemotron_nano();
    const Dimensions dimensions = dimensions_of(scenario);
    const MambaDimensions mamba = mamba_dimensions(dimensions, scenario.model);
    ScriptBuilder script(ScriptKind::dense_layer, "scan");
    Writer writer(script, dimensions, scenario);
    script.boundary({1, 8192, mamba.in_width}, {1, 8192, mamba.inner}, DataType::bf16);
    script.begin_forward(Part::mixer_scan);
    const MambaScan scan = mamba_scan_forward(writer, mamba, kInput);
    script.drop(scan.output);
    script.allocate(kOutput);
    script.drop(kInput);
    script.begin_backward(Part::mixer_scan);
    script.drop(mamba_scan_backward(writer, mamba, scan, kGradOutput));
    script.allocate(kGradInput);
    const LayerScript built = script.build();
    Replay replay(built);
    constexpr double kMebi = 1024.0 * 1024.0;
    const double input = 8192.0 * 10304 * 2 / kMebi;
    replay.forward();
    EXPECT_NEAR(static_cast<double>(replay.peak().count) / kMebi - input, 326.001, 0.01);
    EXPECT_NEAR(static_cast<double>(replay.live().count) / kMebi - input, 128.001, 0.01);
    replay.backward();
    const double kept_and_gradient = 64.0 + 64.0;
    EXPECT_NEAR(static_cast<double>(replay.peak().count) / kMebi - input - kept_and_gradient, 842.016, 0.02);
    EXPECT_EQ(replay.live(), Bytes{0});
}

// h 2048; query and key 16*128 = 2048 each, value 32*128 = 4096: in 2*2048 + 2*4096 + 2*32 = 12352, convolved 8192.
// norm 2048, in 2048*12352 = 25,296,896, taps 4*8192 = 32,768, bias and A 64, norm 128, out 4096*2048 = 8,388,608.
TEST(GatedDeltaNetLayer, HasTheParametersOfQwen3Next) {
    EXPECT_EQ(parameters(layer(qwen3_next(), kDelta)), 2048 + 25'296'896 + 32'768 + 64 + 128 + 8'388'608);
}

// 4096 tokens. Input and normed input 4096*2048*2 = 16,777,216 each and 4 bytes a token; packed 4096*12352*2 =
// 101,187,584. One tensor of 4096*4096*2 = 33,554,432 each: q and k of unit length together, query, key and value with
// 32 heads, the rule's output, the same normed, the gate, the product. fp32 numbers a head: 32 for q and k, decay,
// norm; 16-bit ones: strength; and 64 16-bit numbers of the triangle's inverse.
constexpr std::int64_t kDeltaNumbers = 4096 * 32 * 4;
constexpr std::int64_t kDeltaSaved =
    2 * 16'777'216 + 16'384 + 101'187'584 + 8 * 33'554'432 + 3 * kDeltaNumbers + kDeltaNumbers / 2 + 4096 * 32 * 64 * 2;

TEST(GatedDeltaNetLayer, KeepsWhatTheRuleAndTheGateNeed) {
    EXPECT_EQ(kDeltaSaved, 421'806'080);
    EXPECT_EQ(saved(qwen3_next(), kDelta), kDeltaSaved);
}

// The normed output, its statistics and the product are made again: 2 * 33,554,432 + 524,288 less.
TEST(GatedDeltaNetLayer, RecomputesItsOutput) {
    Scenario scenario = qwen3_next();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::gdn_norm_out};
    EXPECT_EQ(saved(scenario, kDelta), kDeltaSaved - 2 * 33'554'432 - kDeltaNumbers);
}

// Four context-parallel ranks: a quarter of the tokens outside, a quarter of the heads inside; nothing is repeated.
TEST(GatedDeltaNetLayer, KeepsAQuarterOnEachOfFourContextParallelRanks) {
    Scenario scenario = qwen3_next();
    scenario.parallel.context_parallel_size = 4;
    EXPECT_EQ(saved(scenario, kDelta), kDeltaSaved / 4);
}

// Only attention and experts have offload groups; in a layer of experts alone mlp_norm empties the layer's input.
TEST(HybridLayer, OpensTheGroupsOfTheHalfItHas) {
    const Scenario scenario = nemotron_nano();
    EXPECT_EQ(commits(layer(scenario, kMamba)), std::vector<Module>{});
    EXPECT_EQ(commits(layer(qwen3_next(), kDelta)), std::vector<Module>{});
    EXPECT_EQ(commits(layer(scenario, kAttention)),
              (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj}));
    const LayerScript experts = layer(scenario, kExperts);
    EXPECT_EQ(commits(experts), (std::vector<Module>{Module::expert_fc1, Module::moe_act, Module::mlp_norm}));
    const auto last = std::find_if(experts.forward.rbegin(), experts.forward.rend(),
                                   [](const Step& step) { return step.kind == StepKind::commit; });
    EXPECT_EQ(experts.releases[last->detail], std::vector<Slot>{kInput});
}

// Attention of 32 heads and 2 groups of 128: norm 2688, qkv 2688*(4096 + 512), out 4096*2688. A dense MLP of width 1856
// without a gate: norm 2688, 2*2688*1856.
TEST(HybridLayer, HasOneNormAndTheParametersOfOneHalf) {
    EXPECT_EQ(parameters(layer(nemotron_nano(), kAttention)), 2688 + 2688 * 4608 + 4096 * 2688);
    EXPECT_EQ(parameters(layer(nemotron_nano(), kMlp)), 2688 + 2 * 2688 * 1856);
}

TEST(HybridLayers, LeaveNothingBehindAndUseNothingFreed) {
    for (const auto& [tensor, context, batch] :
         std::vector<std::array<std::int64_t, 3>>{{1, 1, 1}, {1, 1, 2}, {2, 1, 1}, {2, 2, 2}, {1, 4, 1}, {2, 8, 1}})
        for (Scenario scenario :
             {first_layers(nemotron_nano(), 8), first_layers(nemotron_super(), 9), first_layers(qwen3_next(), 4)}) {
            scenario.parallel.tensor_model_parallel_size = tensor;
            scenario.parallel.expert_tensor_parallel_size = tensor;
            scenario.parallel.sequence_parallel = tensor > 1;
            scenario.parallel.context_parallel_size = context;
            scenario.batch.micro_batch_size = batch;
            const std::string what = scenario.model.name + " t" + std::to_string(tensor) + " c" +
                                     std::to_string(context) + " b" + std::to_string(batch);
            expect_nothing_left(scenario, 0, what);
            scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
            scenario.recompute.recompute_modules = {types::RecomputeModule::layernorm, types::RecomputeModule::moe_act};
            if (scenario.model.name.starts_with("Qwen"))
                scenario.recompute.recompute_modules.push_back(types::RecomputeModule::gdn_norm_out);
            expect_nothing_left(scenario, 0, what + " recomputed");
            scenario.recompute = {};
            scenario.precision = types::Precision::fp8_blockwise;
            expect_nothing_left(scenario, 0, what + " in FP8");
            scenario.precision = types::Precision::fp16;
            scenario.model.hidden_dropout = 0.1;
            expect_nothing_left(scenario, 0, what + " with dropout");
        }
}

// A published layout: 22 stages of 4 layers, the last with a prediction layer of one attention and one expert layer.
TEST(HybridModel, RunsAPublishedLayoutOfNemotronSuper) {
    Scenario scenario = nemotron_super();
    scenario.parallel.pipeline_model_parallel_size = 22;
    scenario.parallel.context_parallel_size = 4;
    scenario.parallel.expert_model_parallel_size = 4;
    scenario.batch = {.micro_batch_size = 1, .global_batch_size = 256, .seq_length = 32768};
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::shared_experts};
    for (const std::int64_t rank : {0, 1, 21}) expect_nothing_left(scenario, rank, "rank " + std::to_string(rank));
    const StageLayers first = build_megatron_stage(scenario, 0);
    // Embedding, then M E M E: three scripts.
    EXPECT_EQ(first.chunks.front().order, (std::vector<std::size_t>{0, 1, 2, 1, 2}));
    const StageLayers last = build_megatron_stage(scenario, 21);
    const auto mtp = std::find_if(last.scripts.begin(), last.scripts.end(),
                                  [](const LayerScript& script) { return script.kind == ScriptKind::mtp; });
    ASSERT_NE(mtp, last.scripts.end());
    EXPECT_EQ(commits(*mtp), (std::vector<Module>{Module::qkv_linear, Module::core_attn, Module::attn_proj,
                                                  Module::expert_fc1, Module::moe_act, Module::mlp_norm}));
}

// Megatron's count for a hybrid model, per token: 23 Mamba layers 2*2688*(2*5376 + 2048 + 64) + 7*5376*128 +
// 2*5376*2688; 6 attention layers 4*4096*(2688 + 2688/16 + 8192/2); 23 expert layers 4*2688*(1856*6 + 3712); output
// layer 2*2688*131072. Three times that for forward and backward.
TEST(HybridModel, CountsOperationsAsMegatronDoes) {
    const double mamba = 2.0 * 2688 * (2 * 5376 + 2048 + 64) + 7.0 * 5376 * 128 + 2.0 * 5376 * 2688;
    const double attention = 4.0 * 4096 * (2688 + 2688.0 / 16 + 8192.0 / 2);
    const double experts = 4.0 * 2688 * (1856 * 6 + 3712);
    const double token = 23 * mamba + 6 * attention + 23 * experts + 2.0 * 2688 * 131072;
    EXPECT_DOUBLE_EQ(model_flops_per_step(nemotron_nano()), 3 * 64 * 8192 * token);
}

TEST(HybridModel, RefusesWhatItsMixersCannotSplit) {
    Scenario scenario = nemotron_nano();
    scenario.parallel.tensor_model_parallel_size = 16;
    EXPECT_TRUE(refuses(scenario, "Mamba groups that tensor parallelism does not divide"));
    scenario = nemotron_nano();
    scenario.parallel.context_parallel_size = 3;
    EXPECT_TRUE(refuses(scenario, "Mamba heads that tensor and context parallelism do not divide"));
    EXPECT_TRUE(refuses(scenario, "Mamba groups of a rank that neither divide nor are divided by context parallelism"));
    scenario = nemotron_nano();
    scenario.batch.seq_length = 8200;
    EXPECT_TRUE(refuses(scenario, "a sequence that is no multiple of the 128 tokens of a Mamba chunk"));
    scenario = qwen3_next();
    scenario.parallel.tensor_model_parallel_size = 32;
    EXPECT_TRUE(refuses(scenario, "linear-attention heads that tensor and context parallelism do not divide"));
    scenario = nemotron_nano();
    scenario.recompute.recompute_granularity = types::RecomputeGranularity::selective;
    scenario.recompute.recompute_modules = {types::RecomputeModule::gdn_norm_out};
    EXPECT_TRUE(refuses(scenario, "gdn_norm_out recomputed in a model without gated delta nets"));
    scenario = nemotron_nano();
    scenario.precision = types::Precision::fp8_blockwise;
    scenario.model.mamba_num_heads = 72;  // 72 * (2*64 + 1) + 2*8*128 = 11,336 = 16 * 708.5
    EXPECT_TRUE(refuses(scenario, "Mamba input projections of 11336 columns in FP8, which takes multiples of 16"));
    scenario = nemotron_nano();
    scenario.parallel.overlap_moe_expert_parallel_comm = true;
    EXPECT_TRUE(refuses(scenario, "overlap_moe_expert_parallel_comm in a model whose layers have one half only"));
    scenario = nemotron_super();
    scenario.model.mtp_mixers.push_back(Mixer::attention);
    scenario.model.mtp_feed_forward.push_back(FeedForward::none);
    EXPECT_TRUE(refuses(scenario, "multi-token prediction with several attention or expert layers"));
}

}  // namespace
}  // namespace stowage::layers::testing
