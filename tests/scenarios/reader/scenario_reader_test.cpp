#include "scenarios/reader/scenario_reader.hpp"

#include <gtest/gtest.h>

#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

using types::literals::operator""_GiB;
using types::literals::operator""_B;

/// The valid files in a folder of their own, and one edit to them after another.
class ScenarioReader : public ::testing::Test {
protected:
    ScenarioReader() { write_valid_files(); }
    static types::Scenario read() { return read_scenario("scenario.yaml"); }
    static types::Scenario read_with(const std::string& before, const std::string& after) {
        edit_file("scenario.yaml", before, after);
        return read();
    }

private:
    TemporaryFolder folder_;
};

TEST_F(ScenarioReader, FillsInDefaults) {
    const types::Scenario scenario = read();
    EXPECT_EQ(scenario.name, "scenario");
    EXPECT_EQ(scenario.model.name, "model");
    EXPECT_EQ(scenario.hardware.node.name, "machine");
    EXPECT_EQ(scenario.implementation, types::Implementation::megatron);
    EXPECT_EQ(scenario.rules, types::RuleSet::main_2026_08);
    EXPECT_EQ(scenario.precision, types::Precision::bf16);
    EXPECT_EQ(scenario.env.at("NVTE_CPU_OFFLOAD_V1"), "1");
    EXPECT_EQ(scenario.parallel.data_parallel_size, 4);           // 16 GPUs / (2 x 2)
    EXPECT_EQ(scenario.parallel.expert_tensor_parallel_size, 2);  // as tensor parallelism
    EXPECT_EQ(scenario.model.kv_channels, 64);                    // 1024 / 16
    // swiglu: two thirds of 4 x 1024 are 2730, in steps of 64: 2688
    EXPECT_EQ(scenario.model.ffn_hidden_size, 2688);
    EXPECT_EQ(scenario.limits.device_memory, 76_GiB);
    EXPECT_FALSE(scenario.limits.host_memory_per_node.has_value());
    EXPECT_EQ(scenario.host_memory_limit(), 1024_GiB);
    EXPECT_EQ(scenario.offload.min_offloaded_tensor_size, 1048576);
    EXPECT_TRUE(scenario.model.is_moe_layer(0));
    EXPECT_TRUE(scenario.model.is_moe_layer(3));
}

TEST_F(ScenarioReader, TakesMegatronsDefaultsOfTheModel) {
    edit_file("model.yaml", "num_query_groups: 4", "swiglu: false");
    edit_file("model.yaml", "moe_router_topk: 2\nmoe_ffn_hidden_size: 512\n", "");
    const types::Model model = read_model("model.yaml");
    EXPECT_EQ(model.activation, types::Activation::gelu);
    EXPECT_EQ(model.ffn_hidden_size, 4096);      // 4 x hidden_size
    EXPECT_EQ(model.num_query_groups, 16);       // as many as heads
    EXPECT_EQ(model.moe_router_topk, 2);         // Megatron's default
    EXPECT_EQ(model.moe_ffn_hidden_size, 4096);  // as a dense MLP
}

TEST_F(ScenarioReader, ReadsOffloadValuesAutoAndNull) {
    EXPECT_EQ(read().offload.offload_modules, types::ModuleSet{types::Module::core_attn});
    EXPECT_EQ(read().offload.activation_offload_fraction, 0.5);
    const types::Offload automatic = read_with("{offload_modules: [core_attn], activation_offload_fraction: 0.5}",
                                               "{offload_modules: auto, activation_offload_fraction: auto, "
                                               "fine_grained_offloading_max_inflight_offloads: null, "
                                               "delay_offload_until_cuda_graph: auto}")
                                         .offload;
    EXPECT_FALSE(automatic.offload_modules.has_value());
    EXPECT_FALSE(automatic.activation_offload_fraction.has_value());
    EXPECT_FALSE(automatic.fine_grained_offloading_max_inflight_offloads.has_value());
    EXPECT_FALSE(automatic.delay_offload_until_cuda_graph.has_value());
    const types::Offload given =
        read_with("delay_offload_until_cuda_graph: auto",
                  "delay_offload_until_cuda_graph: true, min_offloaded_tensor_size: 350000000, "
                  "delta_offload_bytes_across_pp_ranks: 1024")
            .offload;
    EXPECT_EQ(given.delay_offload_until_cuda_graph, true);
    EXPECT_EQ(given.min_offloaded_tensor_size, 350'000'000);
    EXPECT_EQ(given.delta_offload_bytes_across_pp_ranks, 1024);
}

TEST_F(ScenarioReader, LeavesTheLegalityOfAPolicyToTheRules) {
    // 1.5 is not legal, and the planner's rules say so; here it is a number like any other.
    EXPECT_EQ(read_with("activation_offload_fraction: 0.5", "activation_offload_fraction: 1.5")
                  .offload.activation_offload_fraction,
              1.5);
}

TEST_F(ScenarioReader, OverridesKeysOfTheModelFile) {
    const types::Scenario scenario =
        read_with("model: model.yaml", "model: {from: model.yaml, num_layers: 8, moe_layer_freq: 2}");
    EXPECT_EQ(scenario.model.num_layers, 8);
    EXPECT_EQ(scenario.model.hidden_size, 1024);
    EXPECT_EQ(scenario.model.name, "model");
    const std::vector<bool> every_second{true, false, true, false, true, false, true, false};
    EXPECT_EQ(scenario.model.moe_layer_freq, every_second);
}

TEST_F(ScenarioReader, OverridesKeysOfTheHardwareFileAtAnyDepth) {
    const types::Node node =
        read_with("node: machine.yaml", "node: {from: machine.yaml, device: {memory: 40 GiB}, nvlink: {latency_us: 9}}")
            .hardware.node;
    EXPECT_EQ(node.device.memory, 40_GiB);
    EXPECT_EQ(node.device.gemm_bf16.rate, 700e12);
    EXPECT_EQ(node.nvlink.latency, types::Nanoseconds{9'000});
    EXPECT_EQ(node.nvlink.rate.rate, 450e9);
}

TEST_F(ScenarioReader, ReadsAModelInline) {
    const types::Model model = read_with("model: model.yaml",
                                         "model: {num_layers: 2, hidden_size: 256, num_attention_heads: 4, "
                                         "vocab_size: 1000, normalization: LayerNorm, squared_relu: true}")
                                   .model;
    EXPECT_EQ(model.num_layers, 2);
    EXPECT_EQ(model.normalization, types::Normalization::LayerNorm);
    EXPECT_EQ(model.activation, types::Activation::squared_relu);
    EXPECT_FALSE(model.has_experts());
}

TEST_F(ScenarioReader, ReadsPatternsOfExpertLayers) {
    edit_file("model.yaml", "num_experts: 8", "num_experts: 8\nmoe_layer_freq: [0, 1, 1, 1]");
    EXPECT_EQ(read().model.moe_layer_freq, (std::vector<bool>{false, true, true, true}));
}

TEST_F(ScenarioReader, ReadsEveryFormOfASize) {
    const auto limit = [](const std::string& text) {
        write_valid_files();
        return read_with("device_memory: 76 GiB", "device_memory: " + text).limits.device_memory;
    };
    EXPECT_EQ(limit("80GiB"), 80_GiB);
    EXPECT_EQ(limit("1.5 TiB"), 1536_GiB);
    EXPECT_EQ(limit("'80 GiB'"), 80_GiB);
    EXPECT_EQ(limit("80 GB"), 80'000'000'000_B);
    EXPECT_EQ(limit("2 TB"), 2'000'000'000'000_B);
    EXPECT_EQ(limit("3 MB"), 3'000'000_B);
    EXPECT_EQ(limit("4 KB"), 4'000_B);
    EXPECT_EQ(limit("5 KiB"), 5'120_B);
    EXPECT_EQ(limit("123456789"), 123'456'789_B);
    EXPECT_EQ(limit("7 B"), 7_B);
    EXPECT_EQ(limit("0.1 KiB"), 102_B);  // 102.4, a fraction of a byte is dropped
    EXPECT_EQ(limit("null"), std::nullopt);
}

TEST_F(ScenarioReader, ReadsTheDesignsExample) {
    write_file("scenario.yaml", R"(schema: stowage/scenario/1
model: {from: model.yaml, num_layers: 8}
implementation: megatron
rules: main-2026-08
env: {NVTE_CPU_OFFLOAD_V1: 1}
parallel: {tensor_model_parallel_size: 1, pipeline_model_parallel_size: 4, num_virtual_stages_per_pipeline_rank: 2,
           expert_model_parallel_size: 8, data_parallel_size: 8, sequence_parallel: false}
batch: {micro_batch_size: 1, global_batch_size: 256, seq_length: 8192, routing: skewed, routing_skew: 1.5}
precision: bf16
optimizer: {optimizer: adam, use_distributed_optimizer: true}
recompute: {recompute_granularity: selective, recompute_modules: [layernorm, moe_act]}
cuda_graph: {cuda_graph_impl: transformer_engine, cuda_graph_modules: [attn, moe_router, moe_preprocess], cuda_graph_warmup_steps: 3}
offload: {offload_modules: auto, activation_offload_fraction: auto, min_offloaded_tensor_size: 1048576,   # elements
          delta_offload_bytes_across_pp_ranks: 0, fine_grained_offloading_max_inflight_offloads: null, delay_offload_until_cuda_graph: auto}
hardware: {node: machine.yaml, nodes: 4}
limits: {device_memory: 76 GiB, host_memory_per_node: 1.5 TiB}
objective: step_time
)");
    const types::Scenario scenario = read();
    EXPECT_EQ(scenario.parallel.num_virtual_stages_per_pipeline_rank, 2);
    EXPECT_EQ(scenario.batch.routing, types::Routing::skewed);
    EXPECT_EQ(scenario.batch.routing_skew, 1.5);
    EXPECT_TRUE(scenario.optimizer.use_distributed_optimizer);
    EXPECT_TRUE(scenario.recompute.selects(types::RecomputeModule::moe_act));
    EXPECT_EQ(scenario.cuda_graph.cuda_graph_modules.size(), 3U);
    EXPECT_EQ(scenario.limits.host_memory_per_node, 1536_GiB);
    EXPECT_EQ(scenario.host_memory_limit(), 1024_GiB);  // what the machine has
    EXPECT_EQ(scenario.microbatches(), 32);             // 256 / (1 x 8)
}

TEST_F(ScenarioReader, PointsAtTheFileOfEachKeyLaterOn) {
    edit_file("scenario.yaml", "model: model.yaml", "model: {from: model.yaml, vocab_size: 64000}");
    const LoadedScenario loaded = load_scenario("scenario.yaml");
    EXPECT_TRUE(loaded.where.contains("parallel.tensor_model_parallel_size"));
    EXPECT_FALSE(loaded.where.contains("parallel.data_parallel_size"));
    EXPECT_STREQ(loaded.where.error_at("parallel.tensor_model_parallel_size", "is too small", "try 4").what(),
                 "scenario.yaml:5:31: error: parallel.tensor_model_parallel_size: is too small\n"
                 "    tensor_model_parallel_size: 2\n"
                 "                                ^\n"
                 "hint: try 4");
    EXPECT_EQ(loaded.where.describe("model.hidden_size", "is odd"),
              "model.yaml:3:14: error: hidden_size: is odd\n"
              "  hidden_size: 1024\n"
              "               ^");
    EXPECT_EQ(loaded.where.describe("model.vocab_size", "is odd"),
              "scenario.yaml:2:39: error: model.vocab_size: is odd\n"
              "  model: {from: model.yaml, vocab_size: 64000}\n"
              "                                        ^");
    EXPECT_EQ(loaded.where.describe("parallel.data_parallel_size", "is odd"),
              "scenario.yaml:4:1: error: parallel.data_parallel_size: is odd\n"
              "  parallel:\n"
              "  ^");
    EXPECT_EQ(loaded.where.describe("precision", "is odd"),
              "scenario.yaml:1:1: error: precision: is odd\n"
              "  schema: stowage/scenario/1\n"
              "  ^");
}

}  // namespace
}  // namespace stowage::reader::testing
