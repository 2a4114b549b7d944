#include <gtest/gtest.h>

#include <sstream>

#include "reports/measurement_text.hpp"
#include "tests/reports/measurement_runs.hpp"

namespace stowage::reports {
namespace {

std::string text_of(const MeasuredRun& run) { return measurement_text(measurement_json(run)); }

TEST(MeasurementText, PutsPredictedBesideMeasured) {
    MeasuredRun run = a_measured_run();
    constexpr std::int64_t kGiB = std::int64_t{1} << 30;
    run.measurement.steady_peak_allocated = types::Bytes{4 * kGiB};
    run.predicted.peak_allocated = types::Bytes{5 * kGiB};
    const std::string text = text_of(run);
    EXPECT_EQ(text.substr(0, text.find('\n')), "peer: pipeline rank 1 executed, policy megatron, caching allocator");
    EXPECT_NE(text.find("  step, ms                365.00    366.00   -0.3 %\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  exposed copy, ms          2.00      1.50\n"), std::string::npos) << text;
    EXPECT_NE(text.find("  allocated peak, GiB       5.00      4.00  +25.0 %\n"), std::string::npos) << text;
    EXPECT_NE(text.find("core_attn, fraction 0.5\n"), std::string::npos) << text;
    EXPECT_NE(text.find("local attn mlp: 36 captured, 37 nodes, 38 launches a step\n"), std::string::npos) << text;
    EXPECT_NE(text.find("incomplete: 8 records dropped, 9 not of any operation\n"), std::string::npos) << text;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

// 1.3 GB in 24 ms are 54.2 GB/s, beside the 54.5 of its large copies.
TEST(MeasurementText, GivesRatesOfCopiesInDecimalGigabytes) {
    const std::string text = text_of(a_measured_run());
    EXPECT_NE(text.find("to the host    1.21  24.00  54.2              54.5\n"), std::string::npos) << text;
    EXPECT_NE(text.find("from the host  1.21  25.00  52.0                 -\n"), std::string::npos) << text;
}

// 366.000019 / 363 - 1 = 0.8 %.
TEST(MeasurementText, SaysHowFarTheStepIsFromWhatItsCopiesAllow) {
    MeasuredRun run = a_measured_run();
    EXPECT_NE(
        text_of(run).find("363.00 ms is what these copies allow in any order; the measured step is 0.8 % over it\n"),
        std::string::npos)
        << text_of(run);
    run.debug_modes = {"poison"};
    EXPECT_EQ(text_of(run).find("over it"), std::string::npos);
    run.predicted.pinned = types::Bytes{0};
    EXPECT_EQ(text_of(run).find("what these copies allow"), std::string::npos);
}

TEST(MeasurementText, ShowsTheTenLabelsThatTakeLongestLongestFirst) {
    MeasuredRun run = a_measured_run();
    run.measurement.profile->labels.clear();
    for (int number = 0; number < 12; ++number)
        run.measurement.profile->labels.push_back({"label" + std::to_string(number), "main", 1, 1,
                                                   types::Nanoseconds{1'000'000 * (number + 1)},
                                                   types::Nanoseconds{1'000'000 * (number + 2)}});
    const std::string text = text_of(run);
    EXPECT_EQ(text.find("label0 "), std::string::npos);
    EXPECT_EQ(text.find("label1 "), std::string::npos);
    EXPECT_LT(text.find("label11"), text.find("label10"));
    EXPECT_LT(text.find("label3 "), text.find("label2 "));
    EXPECT_NE(text.find("label11    main       1         13.00        12.00   +8.3 %\n"), std::string::npos) << text;
}

TEST(MeasurementText, SaysThatFaultFindingModesTimeNothing) {
    MeasuredRun run = a_measured_run();
    run.debug_modes = {"spin 3", "fences"};
    const std::string text = text_of(run);
    EXPECT_NE(text.find("spin 3, fences: these find faults and cost time; no time here is a step's\n"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("  step, ms                365.00    366.00       -\n"), std::string::npos) << text;
}

TEST(MeasurementText, LeavesOutWhatIsNotThere) {
    const std::string text = text_of(MeasuredRun{});
    EXPECT_EQ(text.find("graphs"), std::string::npos) << text;
    EXPECT_EQ(text.find("copies"), std::string::npos) << text;
    EXPECT_EQ(text.find("digest"), std::string::npos) << text;
    EXPECT_NE(text.find("none timed"), std::string::npos) << text;
}

TEST(MeasurementText, CountsTheGroupsOfPolicyStowageByModule) {
    MeasuredRun run = a_measured_run();
    run.choice.free = types::FreeOffload{{{types::Module::core_attn}, {}, {types::Module::core_attn}}, 3, 1};
    EXPECT_NE(text_of(run).find("core_attn of 2 layers; reloads 3 groups ahead, copies joined 1 commits on\n"),
              std::string::npos)
        << text_of(run);
}

}  // namespace
}  // namespace stowage::reports
