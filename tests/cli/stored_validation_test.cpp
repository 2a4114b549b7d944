// Measurements that were made on one H200 (2026-11-30, tests/data/validation: 29 configurations and a recording of nine
// slices), predicted again as the code is now.
//
// What must hold is what is asked of predictions: steps from the hardware file within 5 % in the mean and 12 % at most,
// from a recording within 2 and 5 %; allocated and pinned bytes to the byte. Nearly all of the 19 eager configurations
// whose reserved bytes hang on the host's lead are among them, so reserved bytes are held to 1.5 % in the mean here
// where over all 58 of the whole list they are within 1 %; two runs of one configuration differ by up to 8 %.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;

constexpr const char* kMeasured = "validate tests/data/validation --hardware scenarios/hardware/h200-8gpu.yaml";

std::string bars(const std::vector<std::string>& texts) {
    std::string options;
    for (const std::string& text : texts) options += " --bar " + text;
    return options;
}

TEST(StoredValidation, IsPredictedWithinTheBars) {
    const CommandResult result =
        stowage(std::string(kMeasured) + " --json" +
                bars({"hardware.step_time_us.mean=0.05", "hardware.step_time_us.max=0.12", "hardware.pairs.wrong=0",
                      "recording.step_time_us.mean=0.02", "recording.step_time_us.max=0.05", "recording.pairs.wrong=0",
                      "hardware.allocated_bytes_caching.max=0", "hardware.allocated_bytes_replayed.max=0",
                      "hardware.pinned_bytes.max=0", "hardware.reserved_bytes_caching.mean=0.015",
                      "recording.reserved_bytes_caching.mean=0.015"}));
    EXPECT_EQ(result.code, 0) << result.error;
    const json answer = json::parse(result.out);
    for (const json& bar : answer.at("bars")) EXPECT_TRUE(bar.at("met")) << bar;
    EXPECT_EQ(answer.at("bars").size(), 11U);
    EXPECT_EQ(answer.at("summary").at("step_time_us").at("rows"), 29);
}

}  // namespace
}  // namespace stowage::cli
