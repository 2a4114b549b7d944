// The published configurations of tests/data/real_configs.yaml against the shipped models and the placing of layers.
// tools/real_configs.py simulates the same rows; docs/measurements/real-configs.md has the results.

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/types/stages.hpp"

namespace stowage::tests {
namespace {

const std::filesystem::path kRoot{STOWAGE_SOURCE_DIR};

std::vector<YAML::Node> rows(const std::string& kind) {
    std::vector<YAML::Node> found;
    for (const YAML::Node& row : YAML::LoadFile((kRoot / "tests/data/real_configs.yaml").string()))
        if (row["kind"].as<std::string>() == kind) found.push_back(row);
    return found;
}

types::Model model_named(const std::string& name) {
    return reader::read_model(kRoot / "scenarios/models" / (name + ".yaml"));
}

std::int64_t number(const YAML::Node& row, const char* key, std::int64_t otherwise) {
    return row[key] && !row[key].IsNull() ? row[key].as<std::int64_t>() : otherwise;
}

/// A number of the row that the shipped model has, too; rows leave out what they do not know.
void expect_same(const YAML::Node& row, const char* key, std::int64_t shipped) {
    EXPECT_EQ(number(row, key, shipped), shipped) << row["name"] << " " << key;
}

std::int64_t dense_layers(const types::Model& model) {
    return std::count(model.moe_layer_freq.begin(), model.moe_layer_freq.end(), 0);
}

types::ParallelLayout layout_of(const YAML::Node& row) {
    types::ParallelLayout layout;
    layout.pipeline_model_parallel_size = row["pp"].as<std::int64_t>();
    layout.num_virtual_stages_per_pipeline_rank = number(row, "vpp", 1);
    if (row["pp_layout"]) layout.pipeline_model_parallel_layout = row["pp_layout"].as<std::string>();
    layout.account_for_embedding_in_pipeline_split = row["account_embedding_and_loss"].as<bool>(false);
    layout.account_for_loss_in_pipeline_split = layout.account_for_embedding_in_pipeline_split;
    if (row["first_stage_layers"]) {
        layout.decoder_first_pipeline_num_layers = row["first_stage_layers"].as<std::int64_t>();
        layout.decoder_last_pipeline_num_layers = row["last_stage_layers"].as<std::int64_t>();
    }
    return layout;
}

TEST(RealConfigs, NameModelsThatAreShippedWithTheSameSizes) {
    const std::vector<YAML::Node> models = rows("model");
    EXPECT_EQ(models.size(), 21u);
    for (const YAML::Node& row : models) {
        const types::Model model = model_named(row["name"].as<std::string>());
        expect_same(row, "layers", model.num_layers);
        expect_same(row, "hidden", model.hidden_size);
        expect_same(row, "heads", model.num_attention_heads);
        expect_same(row, "kv_groups", model.num_query_groups);
        expect_same(row, "experts", model.num_experts);
        expect_same(row, "topk", model.moe_router_topk);
        expect_same(row, "moe_ffn", model.moe_ffn_hidden_size);
        expect_same(row, "moe_latent", model.moe_latent_size);
        expect_same(row, "shared_ffn", model.moe_shared_expert_intermediate_size);
        expect_same(row, "q_lora_rank", model.q_lora_rank);
        expect_same(row, "kv_lora_rank", model.kv_lora_rank);
        expect_same(row, "v_head_dim", model.v_head_dim);
        if (row["dense_layers"]) expect_same(row, "dense_layers", dense_layers(model));
    }
}

// dp = gpus / (tp pp cp), expert_dp = gpus / (etp ep pp), microbatches = gbs / (mbs dp).
TEST(RealConfigs, DeriveReplicasAndMicrobatchesFromTheirLayouts) {
    for (const YAML::Node& row : rows("config")) {
        types::ParallelLayout layout = layout_of(row);
        layout.tensor_model_parallel_size = row["tp"].as<std::int64_t>();
        layout.context_parallel_size = row["cp"].as<std::int64_t>();
        layout.expert_model_parallel_size = row["ep"].as<std::int64_t>();
        layout.expert_tensor_parallel_size = row["etp"].as<std::int64_t>();
        layout.data_parallel_size = row["derived"]["dp"].as<std::int64_t>();
        EXPECT_EQ(layout.world_size(), row["n_gpus"].as<std::int64_t>()) << row["id"];
        EXPECT_EQ(layout.expert_replicas(), row["derived"]["expert_dp"].as<std::int64_t>()) << row["id"];
        if (!row["derived"]["microbatches"]) continue;
        types::Scenario scenario;
        scenario.parallel = layout;
        scenario.batch.micro_batch_size = row["mbs"].as<std::int64_t>();
        scenario.batch.global_batch_size = row["gbs"].as<std::int64_t>();
        EXPECT_EQ(scenario.microbatches(), row["derived"]["microbatches"].as<std::int64_t>()) << row["id"];
    }
}

// Rows whose stages are not the row's own: DeepSeek-V3 with VPP 2 and 16 stages, which core refuses, too; and four that
// leave out the stages of their recipe (61 layers on 4 x 4, 8 and 8, 92 on 8) or add empty layers (64 for 61).
TEST(RealConfigs, PlaceEveryLayerOnceOrSayWhyNot) {
    const std::vector<std::string> refused{"br-dsv3-gb200-fp8mx-partial-cg", "br-glm45-h100", "br-kimi-gb200",
                                           "mindspeed-dsv3-512npu", "zoo-dsv3-b200"};
    std::vector<std::string> found;
    for (const YAML::Node& row : rows("config")) {
        types::Model model = model_named(row["model"].as<std::string>());
        if (model.mixers.empty() || row["mtp"]) model.mtp_num_layers = number(row, "mtp", 0);
        const auto placed = types::stage_table(layout_of(row), model);
        if (const auto* no = std::get_if<types::NoStages>(&placed)) {
            EXPECT_FALSE(no->reason.empty());
            found.push_back(row["id"].as<std::string>());
            continue;
        }
        const auto layers = types::layers_per_rank(std::get<types::StageTable>(placed));
        EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), model.num_layers) << row["id"];
        EXPECT_EQ(static_cast<std::int64_t>(layers.size()), row["pp"].as<std::int64_t>()) << row["id"];
    }
    std::sort(found.begin(), found.end());
    EXPECT_EQ(found, refused);
}

}  // namespace
}  // namespace stowage::tests
