#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/command.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;

TEST(Explain, PrintsTheRulesPage) {
    const CommandResult result = stowage("explain O4");
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.out,
              "O4 (illegal)\n"
              "  verdict      illegal\n"
              "  rule sets    all\n"
              "  looks at     The implementation is megatron, and offload_modules has attn_proj and not core_attn.\n"
              "  reason       The projection's input is the attention's output, which the backward of the attention\n"
              "               needs on the device.\n"
              "  nearest      Add core_attn to offload_modules, or drop attn_proj.\n"
              "  source       transformer_config.py, offload_modules\n");
    EXPECT_EQ(stowage("explain o4").out, result.out);
    EXPECT_EQ(stowage("explain O4 --quiet").out, "");
}

// X4 is another rule in core-0.18, which has graphs of the whole iteration, than in pr-3219.
TEST(Explain, PrintsEveryEntryOfAnId) {
    const json answer = json::parse(stowage("explain X4 --json").out);
    EXPECT_EQ(answer.at("schema"), "stowage/explain/1");
    ASSERT_EQ(answer.at("rules").size(), 2U);
    EXPECT_EQ(answer.at("rules")[0].at("rule_sets"), json::parse(R"(["pr-3219"])"));
    EXPECT_EQ(answer.at("rules")[1].at("rule_sets"), json::parse(R"(["core-0.18"])"));
    EXPECT_EQ(answer.at("rules")[1].at("looks_at"), "Something is offloaded and cuda_graph_impl is local.");
    const std::string text = stowage("explain X4").out;
    EXPECT_NE(text.find("\n\nX4 (illegal)\n"), std::string::npos) << text;
}

TEST(Explain, GivesEveryFieldOfARule) {
    const json rule = json::parse(stowage("explain --json D10").out).at("rules").at(0);
    EXPECT_EQ(rule.at("rule"), "D10");
    EXPECT_EQ(rule.at("severity"), "legal_with_changes");
    EXPECT_EQ(rule.at("verdict"), "legal_with_changes");
    EXPECT_EQ(rule.at("rule_sets").size(), 5U);
    EXPECT_EQ(rule.at("judged_on"), "scenario");
    EXPECT_EQ(rule.at("nearest_legal"), "Drop the module from offload_modules.");
    EXPECT_EQ(rule.at("source"), "core/models/gpt/gpt_layer_specs.py");
}

TEST(Explain, LeavesTheVerdictToOthersWhereARuleIsANote) {
    EXPECT_EQ(json::parse(stowage("explain --json D7").out).at("rules")[0].at("verdict"), "legal");
    EXPECT_NE(stowage("explain D7").out.find("\n  nearest      Nothing to change.\n"), std::string::npos);
}

TEST(Explain, KnowsRulesAboutArguments) {
    const CommandResult result = stowage("explain O1");
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("\n  judged on    Megatron-LM's arguments"), std::string::npos) << result.out;
}

TEST(Explain, ListsEveryEntryOnALine) {
    const std::string list = stowage("explain").out;
    const auto rules = json::parse(stowage("explain --json").out).at("rules");
    EXPECT_GT(rules.size(), 70U);
    EXPECT_EQ(static_cast<std::size_t>(std::count(list.begin(), list.end(), '\n')), rules.size());
    EXPECT_NE(
        list.find("\nO4   illegal            The implementation is megatron, and offload_modules has attn_proj and not "
                  "core_attn.\n"),
        std::string::npos)
        << list;
}

TEST(Explain, NamesTheNearestRules) {
    const CommandResult result = stowage("explain X9");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.error,
              "stowage: error: explain: there is no rule 'X9'\nhint: near it: X1, X2, X3; 'stowage explain' lists all "
              "rules\n");
    EXPECT_EQ(
        stowage("explain chunk-mismatch-of-microbatches").error,
        "stowage: error: explain: there is no rule 'chunk-mismatch-of-microbatches'\nhint: 'stowage explain' lists "
        "all rules\n");
}

}  // namespace
}  // namespace stowage::cli
