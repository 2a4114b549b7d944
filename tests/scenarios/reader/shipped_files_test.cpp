// The data that comes with the project: it is read without an error, says what the published configurations say, and
// has a source beside every group of figures.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "scenarios/reader/document.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::reader {
namespace {

using types::literals::operator""_GiB;
using types::literals::operator""_KiB;
using types::literals::operator""_MiB;

const std::filesystem::path kScenarios = std::filesystem::path(STOWAGE_SOURCE_DIR) / "scenarios";

std::vector<std::filesystem::path> yaml_files(const std::filesystem::path& folder) {
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().extension() == ".yaml") files.insert(entry.path());
    return {files.begin(), files.end()};
}

/// Parameters of a model with swiglu and without biases, before the vocabulary is padded.
std::int64_t parameters(const types::Model& model) {
    const std::int64_t query = model.num_attention_heads * model.kv_channels;
    const std::int64_t key_value = 2 * model.num_query_groups * model.kv_channels;
    const std::int64_t attention =
        model.hidden_size * (2 * query + key_value) + (model.qk_layernorm ? 2 * model.kv_channels : 0);
    const std::int64_t mlp = model.has_experts()
                                 ? model.num_experts * 3 * model.hidden_size * model.moe_ffn_hidden_size +
                                       model.num_experts * model.hidden_size
                                 : 3 * model.hidden_size * model.ffn_hidden_size;
    const std::int64_t embeddings = 2 * model.vocab_size * model.hidden_size;
    return model.num_layers * (attention + mlp + 2 * model.hidden_size) + embeddings + model.hidden_size;
}

TEST(ShippedFiles, ModelsHaveTheirPublishedParameters) {
    EXPECT_EQ(parameters(read_model(kScenarios / "models/llama3-70b.yaml")), 70'553'706'496);
    EXPECT_EQ(parameters(read_model(kScenarios / "models/qwen3-30b-a3b.yaml")), 30'532'122'624);
    EXPECT_EQ(parameters(read_model(kScenarios / "models/qwen3-235b-a22b.yaml")), 235'093'634'560);
}

TEST(ShippedFiles, EveryScenarioModelAndMachineIsRead) {
    ASSERT_GE(yaml_files(kScenarios).size(), 3U);
    for (const auto& path : yaml_files(kScenarios)) EXPECT_NO_THROW(read_scenario(path)) << path;
    for (const auto& path : yaml_files(kScenarios / "models")) EXPECT_NO_THROW(read_model(path)) << path;
    for (const auto& path : yaml_files(kScenarios / "hardware")) EXPECT_NO_THROW(read_hardware(path)) << path;
}

TEST(ShippedFiles, ScenariosFillTheirMachinesAndLeaveTheChoiceToThePlanner) {
    for (const auto& path : yaml_files(kScenarios)) {
        const types::Scenario scenario = read_scenario(path);
        EXPECT_EQ(scenario.parallel.world_size(), scenario.hardware.gpus()) << path;
        EXPECT_FALSE(scenario.offload.offload_modules.has_value()) << path;
        EXPECT_FALSE(scenario.offload.activation_offload_fraction.has_value()) << path;
        EXPECT_EQ(scenario.name, path.stem().string());
        EXPECT_GE(scenario.microbatches(), 1) << path;
    }
}

TEST(ShippedFiles, TheH200sCopyTimesAreThoseThatWereMeasured) {
    const types::Node node = read_hardware(kScenarios / "hardware/h200-8gpu.yaml");
    EXPECT_EQ(node.copy.device_to_host.time(64_KiB), types::Nanoseconds{2'900});
    EXPECT_EQ(node.copy.device_to_host.time(1024_MiB), types::Nanoseconds{19'417'000});
    EXPECT_EQ(node.copy.host_to_device.time(1_MiB), types::Nanoseconds{22'100});
    EXPECT_EQ(node.copy.host_to_device.time(64_MiB), types::Nanoseconds{1'216'500});
    EXPECT_EQ(node.copy.time_slice, types::Nanoseconds{1'050'000});
    EXPECT_EQ(node.host_memory, 2048_GiB);
    EXPECT_EQ(node.host.pinned_allocation_per_gib, types::Nanoseconds{600'000'000});
}

bool is_figure(const Value& value) {
    return value.kind == Value::Kind::scalar && value.text.find_first_of("0123456789") == 0;
}

bool has_source(const Value& mapping) {
    for (const Member& member : mapping.members)
        if (member.key == "source" || member.key == "sources") return true;
    return false;
}

/// Counts the mappings with figures that have no source, neither themselves nor around them below the root.
void collect_unsourced(const Value& mapping, const std::string& path, bool around, std::vector<std::string>& found) {
    const bool sourced = around || has_source(mapping);
    for (const Member& member : mapping.members) {
        if (member.key == "source" || member.key == "sources") continue;
        if (is_figure(member.value) && !sourced) found.push_back(path + "." + member.key);
        if (member.value.kind == Value::Kind::mapping)
            collect_unsourced(member.value, path + "." + member.key, sourced && !path.empty(), found);
        if (member.value.kind == Value::Kind::sequence && !sourced) found.push_back(path + "." + member.key);
    }
}

TEST(ShippedFiles, EveryGroupOfFiguresHasASource) {
    for (const char* folder : {"hardware", "models"}) {
        for (const auto& path : yaml_files(kScenarios / folder)) {
            Diagnostics diagnostics;
            const Value root = parse_document(load_source(path).source, diagnostics);
            ASSERT_TRUE(diagnostics.empty()) << diagnostics.text();
            ASSERT_TRUE(has_source(root)) << path;
            std::vector<std::string> unsourced;
            collect_unsourced(root, "", false, unsourced);
            EXPECT_EQ(unsourced, std::vector<std::string>{}) << path;
        }
    }
}

TEST(ShippedFiles, AreReadInMilliseconds) {
    const std::clock_t start = std::clock();  // of the process: others' work on the machine is no cost of reading
    for (const auto& path : yaml_files(kScenarios)) read_scenario(path);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    // About 5 ms for three in a release build; the bound leaves room for sanitizers and a busy machine.
    EXPECT_LT(seconds, 2);
}

}  // namespace
}  // namespace stowage::reader
