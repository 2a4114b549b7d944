#include "reports/megatron_table.hpp"

#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <vector>

namespace stowage::reports {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

// Four layers of two groups of 2 MiB, one rank, four microbatches. The first microbatch keeps the last group of each
// name, so 3 groups of 2 MiB = 6 MiB of each are counted. Width: "Rank 0" and 2, then
// 3 * 12, so 44; of the 13 spaces beside the title's 31 letters, 6 stand on its left.
TEST(MegatronTable, IsMegatronsTextForOneRank) {
    const std::array<SummaryStage, 1> stages{{{1, {{"core_attn", 6 * kMiB}, {"attn_proj", 6 * kMiB}}}}};
    EXPECT_EQ(summary_table(stages),
              "\n"
              "============================================\n"
              "      Activation Offload Summary (MB)       \n"
              "============================================\n"
              "Rank       attn_proj   core_attn       Total\n"
              "--------------------------------------------\n"
              "Rank 0          6.00        6.00       12.00\n"
              "--------------------------------------------\n"
              "Total           6.00        6.00       12.00\n"
              "============================================\n"
              "\n");
}

// fused_group_mlp has 15 letters, so columns are 17 wide; "Rank 10" has 7, so the first column is 9 wide. The first
// stage has 8 ranks, the second 3; a rank without a module shows zero. 1.5 MiB * 8 = 12, 0.25 MiB * 3 = 0.75.
TEST(MegatronTable, WidensForLongNamesAndTenRanks) {
    const std::array<SummaryStage, 2> stages{
        {{8, {{"fused_group_mlp", 3 * kMiB / 2}}}, {3, {{"attn_norm", kMiB / 4}}}}};
    const std::vector<std::string> lines = lines_of(summary_table(stages));
    ASSERT_EQ(lines.size(), 21U);  // a blank line and 5 before 11 ranks, 3 and a blank one behind them
    EXPECT_EQ(lines[1], std::string(60, '='));
    EXPECT_EQ(lines[2], std::string(14, ' ') + "Activation Offload Summary (MB)" + std::string(15, ' '));
    EXPECT_EQ(lines[4], "Rank             attn_norm  fused_group_mlp            Total");
    EXPECT_EQ(lines[6], "Rank 0                0.00             1.50             1.50");
    EXPECT_EQ(lines[13], "Rank 7                0.00             1.50             1.50");
    EXPECT_EQ(lines[14], "Rank 8                0.25             0.00             0.25");
    EXPECT_EQ(lines[16], "Rank 10               0.25             0.00             0.25");
    EXPECT_EQ(lines[17], std::string(60, '-'));
    EXPECT_EQ(lines[18], "Total                 0.75            12.00            12.75");
}

// A name of 11 letters takes 13, so 8 + 3 * 13 = 47, and the 16 spaces beside 31 letters stand evenly around.
TEST(MegatronTable, CentresItsTitle) {
    const std::array<SummaryStage, 1> stages{{{1, {{"eleven_char", kMiB}, {"core_attn", kMiB}}}}};
    EXPECT_EQ(lines_of(summary_table(stages))[2],
              std::string(8, ' ') + "Activation Offload Summary (MB)" + std::string(8, ' '));
}

TEST(MegatronTable, HasNoColumnsWhereNothingIsCounted) {
    const std::array<SummaryStage, 1> stages{{{1, {}}}};
    EXPECT_EQ(summary_table(stages),
              "\n====================\nActivation Offload Summary (MB)\n====================\n"
              "Rank           Total\n--------------------\nRank 0          0.00\n--------------------\n"
              "Total           0.00\n====================\n\n");
}

/// Two pipeline ranks of two ranks each; the second counts one module only.
Json plan_under(const char* rules) {
    return {{"rules", rules},
            {"choice", {{"offload_modules", {"core_attn", "moe_act"}}}},
            {"ranks",
             {{{"rank", 0},
               {"pipeline_rank", 0},
               {"stands_for_ranks", 2},
               {"megatron_summary_bytes", {{"core_attn", 2 * kMiB}, {"moe_act", 3 * kMiB}}},
               {"offloaded_bytes", {{"core_attn", 20 * kMiB}, {"moe_act", 30 * kMiB}}}},
              {{"rank", 2},
               {"pipeline_rank", 1},
               {"stands_for_ranks", 2},
               {"megatron_summary_bytes", {{"core_attn", kMiB}, {"moe_act", 0}}},
               {"offloaded_bytes", {{"core_attn", 10 * kMiB}, {"moe_act", 0}}}}}}};
}

std::size_t titles_in(const std::string& text) {
    std::size_t count = 0;
    for (const std::string& line : lines_of(text))
        count += line.find("Activation Offload Summary") != std::string::npos;
    return count;
}

TEST(MegatronTables, AreOneAPipelineRankInNewVersions) {
    for (const char* rules : {"main-2026-08", "dev"}) {
        const std::string text = megatron_tables(plan_under(rules));
        EXPECT_EQ(titles_in(text), 2U) << rules;
        EXPECT_NE(text.find("\nTotal           4.00        6.00       10.00\n"), std::string::npos) << text;
        // The second stage's ranks are numbered from 0 again, and have no column of what they never count.
        EXPECT_NE(text.find("Pipeline rank 1, global ranks 2-3\n\n================================\n"),
                  std::string::npos)
            << text;
        EXPECT_NE(text.find("\nRank       core_attn       Total\n"), std::string::npos) << text;
        EXPECT_NE(text.find("\nRank 1          1.00        1.00\n"), std::string::npos) << text;
        EXPECT_NE(text.find("\nTotal           2.00        2.00\n"), std::string::npos) << text;
    }
}

// 2 * 2 + 2 * 1 = 6 MiB of core_attn, 2 * 3 = 6 of moe_act.
TEST(MegatronTables, AreOneForAllRanksInOldVersions) {
    for (const char* rules : {"pr-3219", "core-0.18", "core-0.19"}) {
        const std::string text = megatron_tables(plan_under(rules));
        EXPECT_EQ(titles_in(text), 1U) << rules;
        EXPECT_NE(text.find("\nRank 3          1.00        0.00        1.00\n"), std::string::npos) << text;
        EXPECT_NE(text.find("\nTotal           6.00        6.00       12.00\n"), std::string::npos) << text;
    }
}

TEST(MegatronTables, ShowWhatAWholeStepMovesBelow) {
    const std::vector<std::string> lines = lines_of(megatron_tables(plan_under("core-0.19")));
    ASSERT_GE(lines.size(), 3U);
    EXPECT_EQ(lines[lines.size() - 3], "  pipeline rank  global ranks  core_attn  moe_act  total");
    EXPECT_EQ(lines[lines.size() - 2], "              0           0-1      20.00    30.00  50.00");
    EXPECT_EQ(lines[lines.size() - 1], "              1           2-3      10.00     0.00  10.00");
}

TEST(MegatronTables, AreNotPrintedWhereNothingIsOffloaded) {
    Json plan = plan_under("main-2026-08");
    plan["choice"]["offload_modules"] = Json::array();
    EXPECT_EQ(megatron_tables(plan), "Nothing is offloaded, so Megatron-LM prints no table.\n");
    plan["ranks"] = Json::array();
    EXPECT_EQ(megatron_tables(plan), "No choice of this plan runs, so there is no table.\n");
}

}  // namespace
}  // namespace stowage::reports
