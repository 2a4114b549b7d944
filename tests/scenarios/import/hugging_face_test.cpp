#include "scenarios/reader/hugging_face.hpp"

#include <gtest/gtest.h>

#include "scenarios/types/error.hpp"
#include "tests/scenarios/import/arguments.hpp"
#include "tests/scenarios/import/round_trip.hpp"

namespace stowage::reader::testing {
namespace {

const std::string kRoot = STOWAGE_SOURCE_DIR;

ImportedScenario import_config(const std::string& name) {
    return import_hugging_face(kRoot + "/tests/data/hugging_face/" + name + ".json",
                               ImportedHardware{shipped_h100(), std::nullopt, std::nullopt});
}

ImportedScenario import_json(const std::string& text) {
    const support::TemporaryFolder folder;
    support::write_text(folder / "config.json", text);
    return import_hugging_face(folder / "config.json", ImportedHardware{shipped_h100(), std::nullopt, 8});
}

std::string json_error(const std::string& text) {
    try {
        import_json(text);
    } catch (const types::InputError& error) {
        const std::string message = error.what();
        return message.substr(message.find("config.json"));
    }
    return {};
}

/// The smallest configuration, with more keys before its end.
std::string llama(const std::string& more = {}) {
    return "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 512,\n  \"intermediate_size\": 1024,\n"
           "  \"num_attention_heads\": 8,\n  \"num_hidden_layers\": 2,\n  \"vocab_size\": 32000" +
           more + "\n}\n";
}

class PublishedConfig : public ::testing::TestWithParam<const char*> {};

/// The shipped models' parameter totals are held to the published ones elsewhere; here config.json gives that model.
TEST_P(PublishedConfig, GivesTheShippedModel) {
    types::Model imported = import_config(GetParam()).scenario.model;
    types::Model shipped = read_model(kRoot + "/scenarios/models/" + GetParam() + ".yaml");
    imported.name = shipped.name;
    EXPECT_TRUE(imported == shipped) << scenario_yaml(import_config(GetParam()).scenario, {});
}

TEST_P(PublishedConfig, MakesAScenarioThatReadsBack) { expect_reads_back(import_config(GetParam()).scenario, false); }

TEST_P(PublishedConfig, HasNoUnknownKey) {
    for (const std::string& note : import_config(GetParam()).notes)
        EXPECT_EQ(note.find("unknown key"), std::string::npos) << note;
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedConfig,
                         ::testing::Values("deepseek-v3", "kimi-k2", "moonlight-16b-a3b", "glm5-744b-a40b",
                                           "qwen3-235b-a22b", "qwen3-30b-a3b", "mixtral-8x22b", "glm4.5-355b-a32b",
                                           "glm4.5-air-106b-a12b", "minimax-m2", "gpt-oss-120b", "gpt-oss-20b",
                                           "llama3-70b", "llama2-70b", "llama3.1-405b", "nemotron3-nano-30b-a3b",
                                           "nemotron3-super-120b-a12b"),
                         [](const auto& family) {
                             std::string name = family.param;
                             for (char& letter : name)
                                 if (letter == '-' || letter == '.') letter = '_';
                             return name;
                         });

TEST(HuggingFaceQwen3Next, IsTheShippedModelButForMultiTokenPrediction) {
    ImportedScenario imported = import_config("qwen3-next-80b-a3b");
    types::Model shipped = read_model(kRoot + "/scenarios/models/qwen3-next-80b-a3b.yaml");
    EXPECT_EQ(shipped.mtp_num_layers, 1);  // config.json does not say it
    imported.scenario.model.mtp_num_layers = 1;
    imported.scenario.model.name = shipped.name;
    EXPECT_TRUE(imported.scenario.model == shipped);
    ASSERT_EQ(imported.notes.size(), 2U);
    EXPECT_NE(imported.notes[0].find("set mtp_num_layers"), std::string::npos);
}

TEST(HuggingFaceQwen3, IsADenseModelWithHeadNorms) {
    const types::Model model = import_config("qwen3-8b").scenario.model;
    EXPECT_TRUE(model.qk_layernorm);
    EXPECT_FALSE(model.has_experts());
    EXPECT_FALSE(model.window_size);
    EXPECT_EQ(model.num_query_groups, 8);
    // 2 x 151936 x 4096 of embedding and output; a layer: attention 4096 x 128 x (2 x 32 + 2 x 8), MLP 3 x 4096 x
    // 12288, norms 2 x 4096 and 2 x 128; a last norm: 8,190,735,360 as published.
    const std::int64_t layer = 4096L * 128 * 80 + 3L * 4096 * 12288 + 2 * 4096 + 2 * 128;
    EXPECT_EQ(2L * model.vocab_size * model.hidden_size + model.num_layers * layer + 4096, 8'190'735'360);
}

TEST(HuggingFaceLayout, IsTheLeastThatCanBeEdited) {
    const ImportedScenario imported = import_config("qwen3-8b");
    const types::Scenario& scenario = imported.scenario;
    EXPECT_EQ(scenario.parallel.tensor_model_parallel_size, 1);
    EXPECT_EQ(scenario.parallel.data_parallel_size, 8);
    EXPECT_EQ(scenario.batch.global_batch_size, 8);
    EXPECT_EQ(scenario.batch.seq_length, 4096);
    EXPECT_EQ(scenario.precision, types::Precision::bf16);
    EXPECT_FALSE(scenario.offload.offload_modules);  // auto
    ASSERT_EQ(imported.notes.size(), 1U);
    EXPECT_NE(imported.notes[0].find("layout, batch, optimizer and hardware are not in this file"), std::string::npos);
    EXPECT_EQ(import_json(llama(",\n  \"max_position_embeddings\": 2048")).scenario.batch.seq_length, 2048);
}

TEST(HuggingFaceSparseLayers, SkipTheListedOnes) {
    const std::string config =
        "{\"model_type\":\"qwen3_moe\",\"hidden_size\":512,\"intermediate_size\":1024,\"num_attention_heads\":8,"
        "\"num_hidden_layers\":4,\"vocab_size\":32000,\"num_experts\":8,\"num_experts_per_tok\":2,"
        "\"moe_intermediate_size\":64,\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}";
    // Layers 1 and 3 (from 0) have experts, 3 is listed as dense.
    EXPECT_EQ(import_json(config).scenario.model.moe_layer_freq, (std::vector<bool>{false, true, false, false}));
}

TEST(HuggingFaceNemotron, TakesTheNewerWordsForLayers) {
    const types::Model model =
        import_json(
            "{\"model_type\": \"nemotron_h\", \"hidden_size\": 512, \"intermediate_size\": 1024, "
            "\"num_attention_heads\": 8, \"num_hidden_layers\": 4, \"vocab_size\": 32000, "
            "\"mlp_hidden_act\": \"relu2\", \"layers_block_type\": [\"mamba\", \"mlp\", \"attention\", \"mlp\"]}")
            .scenario.model;
    EXPECT_EQ(hybrid_letters(model), "M-*-");
    EXPECT_EQ(model.position_embedding_type, types::PositionEmbedding::none);
}

TEST(HuggingFaceErrors, PointIntoTheFile) {
    EXPECT_EQ(json_error("{\n  \"model_type\": \"bloom\"\n}\n"),
              "config.json:2:17: error: model_type: models of type 'bloom' cannot be imported\n"
              "    \"model_type\": \"bloom\"\n"
              "                  ^\n"
              "hint: known are llama, mixtral, qwen3, qwen3_moe, qwen3_next, deepseek_v3, kimi_k2, glm4_moe, "
              "glm_moe_dsa, minimax_m2, minimax, gpt_oss, nemotron_h");
    EXPECT_EQ(json_error("{\n  \"model_type\": \"llama\",\n  \"hidden_size\" 512\n}\n"),
              "config.json:3:19: error: syntax: this is not JSON, expected a Hugging Face config.json\n"
              "    \"hidden_size\" 512\n"
              "                    ^");
    EXPECT_EQ(json_error(llama(",\n  \"hidden_act\": \"gelu\"")),
              "config.json:8:17: error: hidden_act: the activation 'gelu' cannot be described\n"
              "    \"hidden_act\": \"gelu\"\n"
              "                  ^\n"
              "hint: silu and relu2 can");
    EXPECT_NE(json_error(llama(",\n  \"attention_bias\": true")).find("config.json:8:"), std::string::npos);
    EXPECT_NE(json_error(llama(",\n  \"hidden_size\": 512")).find("duplicate key"), std::string::npos);
    EXPECT_NE(json_error("{\"model_type\": \"llama\"}").find("key hidden_size is required"), std::string::npos);
    EXPECT_NE(json_error("{}").find("key model_type is required"), std::string::npos);
    for (const char* text : {"", "[]", "1", "{", "{\"a\": 1,}", "model_type: llama\n"})
        EXPECT_NE(json_error(text), "") << text;
}

TEST(HuggingFaceFiles, MayHoldTabsNullsAndInfinities) {
    std::string text = llama(",\n\t\"head_dim\": null,\n\t\"time_step_limit\": [0.0, Infinity],\n\t\"x\": NaN");
    const ImportedScenario imported = import_json(text);
    EXPECT_EQ(imported.scenario.model.kv_channels, 64);
    ASSERT_EQ(imported.notes.size(), 2U);
    EXPECT_NE(imported.notes[0].find("x: unknown key, passed over"), std::string::npos);
}

TEST(HuggingFaceFiles, MayHoldNumbersBeyondEveryDouble) {
    EXPECT_EQ(import_json(llama(",\n\"rms_norm_eps\": 1e400")).scenario.model.hidden_size, 512);
    EXPECT_NE(json_error(llama(",\n  \"head_dim\": 1e400")).find("config.json:8:15: error: head_dim: found '1e400'"),
              std::string::npos);
}

}  // namespace
}  // namespace stowage::reader::testing
