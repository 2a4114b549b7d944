#include "reports/validation.hpp"

#include <gtest/gtest.h>

namespace stowage::reports {
namespace {

// Absolute errors in order: 0.005, 0.01, 0.02, 0.06.
TEST(Validation, SummarisesAbsoluteErrors) {
    const ErrorSummary summary = summarize({-0.02, 0.005, 0.06, -0.01});
    EXPECT_EQ(summary.rows, 4);
    EXPECT_DOUBLE_EQ(summary.median, 0.015);  // (0.01 + 0.02) / 2
    EXPECT_DOUBLE_EQ(summary.p90, 0.06);      // 0.9 * 4 = 3.6: the fourth
    EXPECT_DOUBLE_EQ(summary.max, 0.06);
    EXPECT_DOUBLE_EQ(summary.within_1_percent, 0.5);  // a limit counts as within
    EXPECT_DOUBLE_EQ(summary.within_5_percent, 0.75);
}

TEST(Validation, TakesTheNearestRankForTheNinetiethPercentile) {
    std::vector<double> errors;
    for (int i = 1; i <= 10; ++i) errors.push_back(i * 0.001);
    EXPECT_DOUBLE_EQ(summarize(errors).p90, 0.009);  // the ninth of ten
    EXPECT_DOUBLE_EQ(summarize(errors).median, 0.0055);
}

TEST(Validation, OfNothingIsZero) {
    EXPECT_EQ(summarize({}).rows, 0);
    EXPECT_EQ(summarize({}).max, 0);
}

TEST(Validation, RelatesThePredictionToTheMeasurement) {
    EXPECT_DOUBLE_EQ((ValidationRow{"job", "h100", 8, "allocated_bytes", 90, 100}).error(), -0.1);
}

TEST(Validation, CountsRefusedRunsByFeature) {
    const Validation validation{
        "table.yaml", {}, {{"one", "h100", 8, {"Muon"}}, {"two", "gb200", 4, {"FSDP", "Muon"}}}};
    const std::string text = validation_text(validation);
    const std::size_t muon = text.find("2  Muon");
    const std::size_t fsdp = text.find("1  FSDP");
    ASSERT_NE(muon, std::string::npos) << text;
    ASSERT_NE(fsdp, std::string::npos) << text;
    EXPECT_LT(muon, fsdp);
    EXPECT_NE(text.find("two on 4 gb200"), std::string::npos);
    EXPECT_EQ(validation_json(validation).at("refused")[1].at("missing"), Json::array({"FSDP", "Muon"}));
}

}  // namespace
}  // namespace stowage::reports
