#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;
using support::write_text;

const std::string kArguments =
    "env: {NVTE_CPU_OFFLOAD_V1: 1}\n"
    "num-layers: 12\n"
    "hidden-size: 512\n"
    "num-attention-heads: 8\n"
    "seq-length: 1024\n"
    "max-position-embeddings: 1024\n"
    "hidden-dropout: 0.0\n"
    "attention-dropout: 0.0\n"
    "bf16: true\n";

/// A folder with args.yaml in it.
struct Arguments {
    explicit Arguments(const std::string& more = {}) { write_text(folder / "args.yaml", kArguments + more); }
    [[nodiscard]] std::string path(const std::string& name = "args.yaml") const { return (folder / name).string(); }
    TemporaryFolder folder;
};

std::string config(const std::string& name) {
    return std::string(STOWAGE_SOURCE_DIR) + "/tests/data/hugging_face/" + name + ".json";
}

TEST(Import, WritesAScenarioThatOtherVerbsTake) {
    const Arguments arguments;
    const std::string out = arguments.path("scenario.yaml");
    const CommandResult result = stowage("import megatron " + arguments.path() + " --world-size 8 --out " + out);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error, "stowage: wrote " + out + "\n");
    EXPECT_EQ(file_text(out).find("# Imported from the Megatron-LM arguments args.yaml.\n"), 0U);
    EXPECT_EQ(stowage("check " + out).code, 0);
    EXPECT_EQ(stowage("simulate " + out).code, 0);
}

TEST(Import, TellsItsNotesAndThePathAsJson) {
    const Arguments arguments("frobnicate: 3\n");
    const std::string out = arguments.path("scenario.yaml");
    const CommandResult result = stowage("import megatron " + arguments.path() + " --world-size 8 --json --out " + out);
    EXPECT_EQ(result.code, 0);
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer.at("schema"), "stowage/import/1");
    EXPECT_EQ(answer.at("scenario"), out);
    const std::string note = arguments.path() + ":10:13: frobnicate: unknown argument, passed over";
    EXPECT_EQ(answer.at("notes"), json::array({note}));
    EXPECT_NE(result.error.find("stowage: " + note), std::string::npos);
    EXPECT_NE(file_text(out).find("\n# Note: args.yaml:10:13: frobnicate: unknown"), std::string::npos);
    EXPECT_EQ(stowage("import megatron " + arguments.path() + " --world-size 8 --quiet --out " + out).error, "");
}

TEST(Import, NotesHowManyMachinesItTookWhereNobodySays) {
    const Arguments arguments;
    const CommandResult result =
        stowage("import megatron " + arguments.path() + " --out " + arguments.path("scenario.yaml"));
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.error.find("1 machines of 8 are the fewest that the layout fills"), std::string::npos);
}

TEST(Import, LeavesNothingBehindWhenAFileIsWrong) {
    const Arguments arguments("optimizer: muon\n");
    const CommandResult result =
        stowage("import megatron " + arguments.path() + " --out " + arguments.path("scenario.yaml"));
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.error, arguments.path() +
                                ":10:12: error: optimizer: the optimizer muon cannot be planned\n"
                                "  optimizer: muon\n"
                                "             ^\n"
                                "hint: adam and sgd can be described\n");
    EXPECT_EQ(arguments.folder.listing(), "args.yaml\n");
}

TEST(Import, RefusesWhatMegatronRejectsBeforeThereIsAScenario) {
    const Arguments arguments("cuda-graph-impl: transformer_engine\ncuda-graph-scope: full_iteration\n");
    const CommandResult result =
        stowage("import megatron " + arguments.path() + " --out " + arguments.path("scenario.yaml"));
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.error.find(":11:19: error: cuda-graph-scope: "), std::string::npos) << result.error;
    EXPECT_NE(result.error.find("(G3)"), std::string::npos);
    EXPECT_EQ(arguments.folder.listing(), "args.yaml\n");
}

TEST(Import, KnowsItsCommandLine) {
    const Arguments arguments;
    const std::string from = "import megatron " + arguments.path();
    const std::string out = " --out " + arguments.path("scenario.yaml");
    const std::vector<std::string> wrong{"import",
                                         "import megatron",
                                         from,
                                         "import torch " + arguments.path() + out,
                                         from + " --out " + arguments.path(),
                                         from + out + " --nodes 0",
                                         from + out + " --nodes 1 --world-size 8"};
    for (const std::string& line : wrong) EXPECT_EQ(stowage(line).code, 2) << line;
    EXPECT_EQ(stowage(from + out + " --hardware no-such-file.yaml").code, 3);
    EXPECT_EQ(stowage("import megatron no-such-file.yaml" + out).code, 3);
    EXPECT_EQ(stowage(from + " --out " + arguments.path("no-such-folder/s.yaml")).code, 3);
    EXPECT_EQ(arguments.folder.listing(), "args.yaml\n");
}

TEST(Import, MakesAScenarioOfAHuggingFaceConfiguration) {
    const TemporaryFolder folder;
    const std::string out = (folder / "qwen.yaml").string();
    const CommandResult result = stowage("import hf " + config("qwen3-8b") + " --nodes 2 --out " + out);
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.error.find("layout, batch, optimizer and hardware are not in this file"), std::string::npos);
    const std::string text = file_text(out);
    EXPECT_NE(text.find("# Only the model comes from there"), std::string::npos);
    EXPECT_NE(text.find("\n  nodes: 2\n"), std::string::npos);
    EXPECT_EQ(stowage("check " + out).code, 0);
}

TEST(CheckMegatron, JudgesArgumentsAsAScenario) {
    const Arguments arguments(
        "fine-grained-activation-offloading: true\n"
        "offload-modules: '[attn_proj]'\n");
    const CommandResult result = stowage("check --json --megatron " + arguments.path() + " --world-size 8");
    EXPECT_EQ(result.code, 4);
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer.at("verdict"), "illegal");
    ASSERT_EQ(answer.at("findings").size(), 1U);
    EXPECT_EQ(answer.at("findings")[0].at("rule"), "O4");
    EXPECT_EQ(answer.at("findings")[0].at("at"), arguments.path() + ":11:18");
    EXPECT_NE(
        stowage("check --megatron " + arguments.path() + " --world-size 8").out.find("    at " + arguments.path()),
        std::string::npos);
}

TEST(CheckMegatron, KnowsRulesThatOnlyArgumentsBreak) {
    const Arguments rejected("cuda-graph-scope: full_iteration\ninference-cuda-graph-scope: block\n");
    const CommandResult result = stowage("check --json --megatron " + rejected.path() + " --world-size 8");
    EXPECT_EQ(result.code, 4);
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer.at("verdict"), "illegal");
    ASSERT_EQ(answer.at("findings").size(), 2U);
    EXPECT_EQ(answer.at("findings")[0].at("rule"), "G3");
    EXPECT_EQ(answer.at("findings")[0].at("severity"), "legal_with_changes");
    EXPECT_EQ(answer.at("findings")[1].at("rule"), "G4");
    EXPECT_EQ(answer.at("findings")[1].at("at"), rejected.path() + ":11:29");
    const Arguments changed("sequence-parallel: true\n");
    const CommandResult milder = stowage("check --json --megatron " + changed.path() + " --world-size 8");
    EXPECT_EQ(milder.code, 0);
    EXPECT_EQ(json::parse(milder.out).at("verdict"), "legal_with_changes");
}

TEST(CheckMegatron, TakesTheRulesOfAnotherVersion) {
    const Arguments arguments(
        "fine-grained-activation-offloading: true\n"
        "offload-modules: '[core_attn fused_group_mlp]'\n");
    const CommandResult result =
        stowage("check --json --rules core-0.18 --megatron " + arguments.path() + " --world-size 8");
    EXPECT_EQ(json::parse(result.out).at("rules"), "core-0.18");
    EXPECT_EQ(stowage("check --megatron " + arguments.path() + " scenario.yaml").code, 2);
    EXPECT_EQ(stowage("check").code, 2);
    EXPECT_EQ(stowage("check --megatron no-such-file.yaml").code, 3);
}

}  // namespace
}  // namespace stowage::cli
