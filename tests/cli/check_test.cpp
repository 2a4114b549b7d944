#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;

/// The small scenario with graphs of these modules and `core_attn` offloaded.
std::string with_graphs(const TemporaryFolder& folder, const std::string& graph) {
    std::string text = file_text(STOWAGE_SOURCE_DIR "/" + kSmall);
    const std::string before = "{offload_modules: auto, activation_offload_fraction: auto}";
    text.replace(text.find(before), before.size(), "{offload_modules: [core_attn]}\ncuda_graph: " + graph);
    support::write_text(folder / "s.yaml", text);
    return (folder / "s.yaml").string();
}

// Whether graphs can be planned is not asked. moe_router of a dense model breaks G9; without it attention is left.
TEST(CheckGraphs, IsAnsweredByTheRules) {
    const TemporaryFolder folder;
    const std::string scenario =
        with_graphs(folder, "{cuda_graph_impl: transformer_engine, cuda_graph_modules: [attn, moe_router]}");
    const CommandResult result = stowage("check --json " + scenario);
    EXPECT_EQ(result.code, 4) << result.error;
    const json check = json::parse(result.out);
    EXPECT_EQ(check.at("verdict"), "illegal");
    EXPECT_EQ(check.at("findings")[0].at("rule"), "G9");
    EXPECT_EQ(check.at("nearest")[0],
              json::parse(R"({"changes": ["drop moe_router from cuda_graph_modules"], "verdict": "legal"})"));
    EXPECT_NE(stowage("check " + scenario).out.find("\n  legal: drop moe_router from cuda_graph_modules\n"),
              std::string::npos);
}

TEST(CheckGraphs, IsAnsweredBeforeAPlanIsTried) {
    const TemporaryFolder folder;
    const std::string scenario =
        with_graphs(folder, "{cuda_graph_impl: transformer_engine, cuda_graph_modules: [attn, moe_router]}");
    const CommandResult result = stowage("plan --quiet " + scenario);
    EXPECT_EQ(result.code, 4) << result.error;
    EXPECT_EQ(result.error.find("stowage: error: Megatron refuses this job, whatever it offloads: "), 0U)
        << result.error;
}

TEST(CheckGraphs, TellsAHazardAndExitsWithYes) {
    const TemporaryFolder folder;
    const CommandResult result =
        stowage("check --json " + with_graphs(folder, "{cuda_graph_impl: transformer_engine}"));
    EXPECT_EQ(result.code, 0) << result.error;
    const json check = json::parse(result.out);
    EXPECT_EQ(check.at("verdict"), "hazard");
    EXPECT_EQ(check.at("findings")[0].at("rule"), "H1");
    EXPECT_FALSE(check.at("nearest").empty());
}

// Whole layers offloaded: no scenario can say it, and the rule about it (O1) is judged all the same.
TEST(CheckArguments, JudgesWhatCannotBePlanned) {
    const TemporaryFolder folder;
    support::write_text(folder / "args.yaml",
                        "num-layers: 4\nhidden-size: 1024\nnum-attention-heads: 16\nseq-length: 1024\n"
                        "max-position-embeddings: 1024\nmicro-batch-size: 1\nvocab-size: 4096\nbf16: true\n"
                        "cpu-offloading: true\nfine-grained-activation-offloading: true\noffload-modules: core_attn\n");
    const std::string arguments = (folder / "args.yaml").string();
    const CommandResult result = stowage("check --json --world-size 8 --megatron " + arguments);
    EXPECT_EQ(result.code, 4) << result.error;
    const json check = json::parse(result.out);
    ASSERT_EQ(check.at("findings").size(), 1U);
    EXPECT_EQ(check.at("findings")[0].at("rule"), "O1");
    EXPECT_EQ(check.at("findings")[0].at("at"), arguments + ":9:17");
    EXPECT_EQ(stowage("import megatron --world-size 8 " + arguments + " --out " + (folder / "s.yaml").string()).code,
              3);
}

}  // namespace
}  // namespace stowage::cli
