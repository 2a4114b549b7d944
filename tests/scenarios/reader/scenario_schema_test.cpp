#include "scenarios/reader/scenario_schema.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "scenarios/reader/scenario_reader.hpp"
#include "tests/scenarios/reader/temporary_folder.hpp"

namespace stowage::reader::testing {
namespace {

using nlohmann::json;
using Paths = std::set<std::string>;

/// The object among the alternatives of a reference, without `from`; or the schema itself.
const json& object_of(const json& schema) {
    if (!schema.contains("anyOf")) return schema;
    for (const json& alternative : schema["anyOf"])
        if (alternative.contains("properties")) return alternative;
    return schema;
}

void collect(const json& schema, const std::string& prefix, Paths& paths) {
    const json& object = object_of(schema);
    if (!object.contains("properties")) return;
    for (const auto& [name, value] : object["properties"].items()) {
        paths.insert(prefix + name);
        collect(value, prefix + name + ".", paths);
        if (value.contains("items")) collect(value["items"], prefix + name + "[].", paths);
    }
}

Paths schema_paths() {
    Paths paths;
    collect(scenario_schema(), "", paths);
    return paths;
}

TEST(ScenarioSchema, HasEveryKeyOfTheDesign) {
    const Paths paths = schema_paths();
    for (const char* key : {"schema",
                            "model",
                            "model.num_layers",
                            "model.moe_layer_freq",
                            "implementation",
                            "rules",
                            "env",
                            "parallel.tensor_model_parallel_size",
                            "parallel.num_virtual_stages_per_pipeline_rank",
                            "parallel.expert_tensor_parallel_size",
                            "batch.routing",
                            "batch.routing_skew",
                            "precision",
                            "optimizer.use_distributed_optimizer",
                            "recompute.recompute_modules",
                            "cuda_graph.cuda_graph_modules",
                            "cuda_graph.cuda_graph_warmup_steps",
                            "offload.offload_modules",
                            "offload.activation_offload_fraction",
                            "offload.min_offloaded_tensor_size",
                            "offload.delta_offload_bytes_across_pp_ranks",
                            "offload.fine_grained_offloading_max_inflight_offloads",
                            "offload.delay_offload_until_cuda_graph",
                            "hardware.node",
                            "hardware.node.copy.device_to_host[].time_us",
                            "hardware.nodes",
                            "limits.device_memory",
                            "limits.host_memory_per_node",
                            "objective"})
        EXPECT_EQ(paths.count(key), 1U) << key;
}

/// A document in which every key of the schema stands, each with a value that fits nothing. A list of mappings has one.
std::string document_of(const json& schema, int indent) {
    std::string text;
    for (const auto& [name, value] : object_of(schema)["properties"].items()) {
        const std::string margin(static_cast<std::size_t>(indent), ' ');
        if (name == "schema")
            text += margin + name + ": " + value["const"].get<std::string>() + "\n";
        else if (object_of(value).contains("properties"))
            text += margin + name + ":\n" + document_of(value, indent + 2);
        else if (value.contains("items") && value["items"].contains("properties"))
            text += margin + name + ":\n" + margin + "  -\n" + document_of(value["items"], indent + 4);
        else
            text += margin + name + ": {}\n";
    }
    return text;
}

TEST(ScenarioSchema, TheReaderKnowsEveryKeyOfIt) {
    const TemporaryFolder folder;
    write_file("all.yaml", document_of(scenario_schema(), 0));
    try {
        read_scenario("all.yaml");
        FAIL() << "no value of the document fits";
    } catch (const types::InputError& error) {
        const std::string text = error.what();
        EXPECT_EQ(text.find("unknown key"), std::string::npos) << text;
        EXPECT_EQ(text.find("missing key"), std::string::npos) << text;
        EXPECT_NE(text.find("hardware.node.copy.slowdown.gemm.under_both: found a mapping"), std::string::npos) << text;
    }
}

/// `a[3].b` stands in the schema as `a[].b`.
std::string without_indices(const std::string& path) {
    std::string result;
    for (char letter : path)
        if (result.empty() || result.back() != '[' || letter < '0' || letter > '9') result += letter;
    return result;
}

TEST(ScenarioSchema, HasEveryKeyThatTheReaderTookFromTheShippedFiles) {
    const Paths paths = schema_paths();
    std::size_t taken = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios")) {
        if (entry.path().extension() != ".yaml") continue;
        for (const std::string& path : load_scenario(entry.path()).where.paths()) {
            EXPECT_EQ(paths.count(without_indices(path)), 1U) << path << " in " << entry.path();
            ++taken;
        }
    }
    EXPECT_GT(taken, 300U);  // three scenarios with about 60 keys of the machine, 20 of the model and 30 of their own
}

TEST(ScenarioSchema, SaysRangesChoicesAndDefaults) {
    const json schema = scenario_schema();
    EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    EXPECT_EQ(schema["additionalProperties"], false);
    EXPECT_EQ(schema["required"], json({"schema", "model", "batch", "hardware"}));
    const json& parallel = schema["properties"]["parallel"]["properties"];
    EXPECT_EQ(parallel["tensor_model_parallel_size"]["default"], 1);
    EXPECT_EQ(parallel["tensor_model_parallel_size"]["minimum"], 1);
    EXPECT_FALSE(parallel["data_parallel_size"].contains("default"));
    EXPECT_EQ(schema["properties"]["rules"]["default"], "main-2026-08");
    const json& fraction = schema["properties"]["offload"]["properties"]["activation_offload_fraction"];
    EXPECT_EQ(fraction["anyOf"][0]["type"], "number");
    EXPECT_EQ(fraction["anyOf"][1]["const"], "auto");
    EXPECT_EQ(fraction["default"], 1.0);
    const json& inflight =
        schema["properties"]["offload"]["properties"]["fine_grained_offloading_max_inflight_offloads"];
    EXPECT_TRUE(inflight["default"].is_null());
    const json& model = schema["properties"]["model"]["anyOf"];
    EXPECT_EQ(model[0]["type"], "string");
    EXPECT_EQ(model[1]["required"], json({"num_layers", "hidden_size", "num_attention_heads", "vocab_size"}));
    EXPECT_EQ(model[2]["required"], json({"from"}));
    EXPECT_EQ(model_schema()["properties"]["schema"]["const"], "stowage/model/1");
    EXPECT_EQ(hardware_schema()["properties"]["schema"]["const"], "stowage/hardware/1");
}

}  // namespace
}  // namespace stowage::reader::testing
