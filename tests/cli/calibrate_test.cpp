// What 'stowage calibrate' does around the measuring, which a fake does (fake_gpu.cpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;

const std::string kBase = STOWAGE_SOURCE_DIR "/scenarios/hardware/h100-8gpu.yaml";

class Calibrate : public testing::Test {
protected:
    Calibrate() {
        setenv("STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU, 1);
        setenv("SOURCE_DATE_EPOCH", "1796000000", 1);  // 2026-11-30
    }
    Calibrate(const Calibrate&) = delete;
    Calibrate& operator=(const Calibrate&) = delete;
    ~Calibrate() override {
        for (const char* name :
             {"STOWAGE_GPU_LIBRARY", "SOURCE_DATE_EPOCH", "STOWAGE_FAKE_DEVICE", "STOWAGE_FAKE_ERROR"})
            unsetenv(name);
    }
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
    support::TemporaryFolder folder_;
};

TEST_F(Calibrate, WritesAHardwareFileThatAScenarioCanUse) {
    const CommandResult result = stowage("calibrate --out " + path("m.yaml"));
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.out.find("NVIDIA H200 measured; the rest from h200-8gpu.yaml\n"), 0U) << result.out;
    EXPECT_NE(result.error.find("stowage: copies\n"), std::string::npos);
    EXPECT_NE(result.error.find("stowage: wrote " + path("m.yaml") + "\n"), std::string::npos);
    EXPECT_EQ(folder_.listing(), "m.yaml\n");
    const std::string text = file_text(folder_ / "m.yaml");
    EXPECT_NE(text.find("2026-11-30"), std::string::npos);
    std::string scenario = file_text(STOWAGE_SOURCE_DIR "/scenarios/dense-8x4096.yaml");
    const std::string shipped = "hardware/h200-8gpu.yaml";
    const std::size_t place = scenario.find(shipped);
    ASSERT_NE(place, std::string::npos);
    scenario.replace(place, shipped.size(), "m.yaml");
    support::write_text(folder_ / "s.yaml", scenario);
    const CommandResult planned = stowage("plan --json --quiet " + path("s.yaml"));
    ASSERT_EQ(planned.code, 0) << planned.error;
    EXPECT_GT(json::parse(planned.out).at("predicted").at("step_time_us").get<double>(), 0);
}

TEST_F(Calibrate, OfTheSameMeasurementsWritesTheSameBytes) {
    for (const char* name : {"one.yaml", "two.yaml"})
        ASSERT_EQ(stowage("calibrate --quiet --out " + path(name)).code, 0);
    EXPECT_EQ(file_text(folder_ / "one.yaml"), file_text(folder_ / "two.yaml"));
}

TEST_F(Calibrate, AnswersInJson) {
    const CommandResult result = stowage("calibrate --json --quiet --out " + path("m.yaml"));
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.error, "");
    const json report = json::parse(result.out);
    EXPECT_EQ(report.at("schema"), "stowage/calibration/1");
    EXPECT_EQ(report.at("base"), "h200-8gpu.yaml");
    EXPECT_EQ(stowage("calibrate --quiet --out " + path("m.yaml")).out, "");
}

TEST_F(Calibrate, TakesAnotherBaseByName) {
    const CommandResult result = stowage("calibrate --json --quiet --out " + path("m.yaml") + " --base " + kBase);
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(json::parse(result.out).at("base"), "h100-8gpu.yaml");
    EXPECT_NE(file_text(folder_ / "m.yaml").find("from h100-8gpu.yaml"), std::string::npos);
}

TEST_F(Calibrate, NeedsABaseForADeviceThatNoShippedFileIsOf) {
    setenv("STOWAGE_FAKE_DEVICE", "Other Maker X1", 1);
    const CommandResult result = stowage("calibrate --out " + path("m.yaml"));
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.error,
              "stowage: error: --base: no shipped hardware file is of 'Other Maker X1'\n"
              "hint: name the file of a similar machine: its links, host memory and framework costs are taken over, as "
              "one GPU does not show them\n");
    EXPECT_EQ(folder_.listing(), "");
    EXPECT_EQ(stowage("calibrate --quiet --out " + path("m.yaml") + " --base " + kBase).code, 0);
    setenv("STOWAGE_FAKE_DEVICE", "NVIDIA A100-SXM4-80GB", 1);
    const CommandResult known = stowage("calibrate --json --quiet --out " + path("m.yaml"));
    ASSERT_EQ(known.code, 0) << known.error;
    EXPECT_EQ(json::parse(known.out).at("base"), "a100-8gpu.yaml");
}

TEST_F(Calibrate, RefusesWrongOptionsAndFiles) {
    EXPECT_EQ(stowage("calibrate").code, 2);
    EXPECT_EQ(stowage("calibrate --out ''").error, "stowage: error: --out: found no name, expected a file to write\n");
    support::write_text(folder_ / "base.yaml", file_text(kBase));
    const CommandResult same = stowage("calibrate --out " + path("base.yaml") + " --base " + path("base.yaml"));
    EXPECT_EQ(same.code, 2);
    EXPECT_EQ(same.error, "stowage: error: --out would replace the file that is read: " + path("base.yaml") + "\n");
    support::write_text(folder_ / "wrong.yaml", "schema: stowage/hardware/1\nnmae: x\n");
    const CommandResult wrong = stowage("calibrate --out " + path("m.yaml") + " --base " + path("wrong.yaml"));
    EXPECT_EQ(wrong.code, 3);
    EXPECT_NE(wrong.error.find("wrong.yaml:2:1: error: "), std::string::npos) << wrong.error;
    EXPECT_EQ(stowage("calibrate --out " + path("no/m.yaml")).code, 3);
    EXPECT_EQ(stowage("calibrate --out " + path("m.yaml") + " --base " + path("none.yaml")).code, 3);
    EXPECT_EQ(folder_.listing().find("m.yaml"), std::string::npos);
}

TEST_F(Calibrate, NeedsTheLibraryThatDrivesADevice) {
    setenv("STOWAGE_GPU_LIBRARY", "/no/such.so", 1);
    const CommandResult result = stowage("calibrate --out " + path("m.yaml"));
    EXPECT_EQ(result.code, 5);
    EXPECT_EQ(result.error, "stowage: error: calibrate: STOWAGE_GPU_LIBRARY names no file: /no/such.so\n");
}

TEST_F(Calibrate, LeavesNothingBehindWhenTheDeviceFails) {
    setenv("STOWAGE_FAKE_ERROR", "device", 1);
    const CommandResult result = stowage("calibrate --quiet --out " + path("m.yaml"));
    EXPECT_EQ(result.code, 5);
    EXPECT_EQ(result.error, "stowage: error: there is no device here\n");
    EXPECT_EQ(folder_.listing(), "");
}

}  // namespace
}  // namespace stowage::cli
