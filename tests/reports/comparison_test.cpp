#include "reports/comparison.hpp"

#include <gtest/gtest.h>

namespace stowage::reports {
namespace {

ComparedRun run_of(const std::string& name, const std::string& slice, double measured, double predicted,
                   std::optional<double> recorded = std::nullopt) {
    ComparedRun run;
    run.name = name;
    run.slice = slice;
    run.quantities.push_back({"step_time_us", measured, {predicted, recorded}, std::nullopt});
    return run;
}

TEST(ComparedQuantity, HasAnErrorWhereBothSidesAreThere) {
    ComparedQuantity quantity{"driver_bytes", 200, {210, std::nullopt}, std::nullopt};
    EXPECT_DOUBLE_EQ(quantity.error(Column::hardware).value(), 0.05);
    EXPECT_FALSE(quantity.error(Column::recording));
    quantity.measured.reset();
    EXPECT_FALSE(quantity.error(Column::hardware));
}

TEST(ComparedQuantity, OfNothingMeasuredIsRightOrWrong) {
    EXPECT_EQ((ComparedQuantity{"pinned_bytes", 0, {0, 5}, std::nullopt}).error(Column::hardware), 0.0);
    EXPECT_EQ((ComparedQuantity{"pinned_bytes", 0, {0, 5}, std::nullopt}).error(Column::recording), 1.0);
    // Of a step of 1000 a wait of 20 where 10 were predicted.
    EXPECT_EQ((ComparedQuantity{"exposed_copy_us", 20, {10, std::nullopt}, 1000}).error(Column::hardware), -0.01);
}

// Errors of 10 %, -20 % and 0: mean 10 %, median 10 %, largest 20 %.
TEST(Comparison, SummarisesAbsoluteErrors) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 100, 110), run_of("b", "s", 100, 80), run_of("c", "t", 100, 100)};
    const ErrorSummary summary = summary_of(comparison, "step_time_us", Column::hardware);
    EXPECT_EQ(summary.rows, 3);
    EXPECT_DOUBLE_EQ(summary.mean, 0.1);
    EXPECT_DOUBLE_EQ(summary.median, 0.1);
    EXPECT_DOUBLE_EQ(summary.max, 0.2);
    EXPECT_EQ(summary_of(comparison, "step_time_us", Column::recording).rows, 0);
}

// a is predicted 10 % faster than b and is slower; c is within 2 % of b, so that nothing is said of them; d is of
// another slice.
TEST(Comparison, CountsPairsOfASliceThatArePredictedApart) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 101, 100), run_of("b", "s", 100, 110), run_of("c", "s", 120, 111),
                       run_of("d", "t", 10, 1000)};
    const PairCount count = count_pairs(comparison, Column::hardware);
    EXPECT_EQ(count.pairs, 2) << "a and b, a and c";
    ASSERT_EQ(count.wrong.size(), 1U);
    EXPECT_EQ(count.wrong[0].faster, "a");
    EXPECT_EQ(count.wrong[0].slower, "b");
    EXPECT_DOUBLE_EQ(count.wrong[0].measured, 1.01);
}

TEST(Comparison, ReadsBars) {
    const auto bar = parse_bar("recording.step_time_us.mean=0.02");
    ASSERT_TRUE(bar);
    EXPECT_EQ(bar->column, Column::recording);
    EXPECT_EQ(bar->quantity, "step_time_us");
    EXPECT_EQ(bar->statistic, "mean");
    EXPECT_EQ(bar->limit, 0.02);
    EXPECT_TRUE(parse_bar("hardware.pairs.wrong=0"));
    for (const char* wrong : {"", "step_time_us.mean=1", "hardware.mean=1", "hardware.step_time_us.least=1",
                              "hardware.step_time_us.mean", "hardware.step_time_us.mean=x", "hardware.pairs.max=1",
                              "hardware.step_time_us.mean=-1", "other.step_time_us.mean=1"})
        EXPECT_FALSE(parse_bar(wrong)) << wrong;
}

TEST(Comparison, JudgesBars) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 100, 105)};
    comparison.bars = {*parse_bar("hardware.step_time_us.max=0.06"), *parse_bar("hardware.step_time_us.max=0.04"),
                       *parse_bar("recording.step_time_us.max=0.06"), *parse_bar("hardware.pairs.wrong=0")};
    const std::vector<JudgedBar> judged = judge(comparison);
    EXPECT_TRUE(judged[0].met());
    EXPECT_FALSE(judged[1].met());
    EXPECT_FALSE(judged[2].met()) << "no row has it";
    EXPECT_TRUE(judged[3].met());
}

// Steps of 100 and 200: fc1 is 10 over and 5 under, of 300 in all.
TEST(Comparison, SumsErrorsByLabel) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 100, 100), run_of("b", "s", 200, 200)};
    comparison.runs[0].labels = {{"fc1", 40, {50, std::nullopt}}, {"fc2", 20, {20, std::nullopt}}};
    comparison.runs[1].labels = {{"fc1", 80, {75, std::nullopt}}};
    const std::vector<Contribution> list = contributions(comparison, Column::hardware);
    ASSERT_EQ(list.size(), 2U);
    EXPECT_EQ(list[0].label, "fc1");
    EXPECT_DOUBLE_EQ(list[0].error, 5.0 / 300);
    EXPECT_DOUBLE_EQ(list[0].share, 0.4);
    EXPECT_DOUBLE_EQ(list[0].largest, 0.1);
    EXPECT_EQ(list[0].largest_in, "a");
}

TEST(Comparison, IsWrittenInTheShapeThatScriptsRead) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 100, 105, 98)};
    comparison.failed = {{"b", "no room"}};
    const Json json = comparison_json(comparison);
    EXPECT_EQ(json.at("schema"), "stowage/comparison/1");
    const Json& row = json.at("rows").at(0);
    EXPECT_EQ(row.at("name"), "a");
    EXPECT_EQ(row.at("quantity"), "step_time_us");
    EXPECT_EQ(row.at("predicted"), 105);
    EXPECT_EQ(row.at("measured"), 100);
    EXPECT_DOUBLE_EQ(row.at("error").get<double>(), 0.05);
    EXPECT_DOUBLE_EQ(row.at("error_from_recording").get<double>(), -0.02);
    const Json& summary = json.at("summary").at("step_time_us");
    EXPECT_EQ(summary.at("rows"), 1);
    EXPECT_DOUBLE_EQ(summary.at("mean_abs_error").get<double>(), 0.05);
    EXPECT_DOUBLE_EQ(summary.at("from_recording").at("max_abs_error").get<double>(), 0.02);
    EXPECT_EQ(json.at("failed").at(0).at("name"), "b");
}

TEST(Comparison, GivesTheSamePageForTheSameResults) {
    Comparison comparison;
    comparison.runs = {run_of("a", "s", 100, 105)};
    comparison.date = "2026-11-30";
    comparison.command = "stowage validate --run x.yaml";
    const std::string page = comparison_page(comparison);
    EXPECT_EQ(page, comparison_page(comparison));
    EXPECT_NE(page.find("    stowage validate --run x.yaml\n"), std::string::npos);
    EXPECT_NE(page.find("| step_time_us | hardware | 1 | 5.00 % | 5.00 % | 5.00 % | 5.00 % |\n"), std::string::npos)
        << page;
}

}  // namespace
}  // namespace stowage::reports
