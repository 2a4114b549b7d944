// `--recording`, with a recording of tests/data/small_stowage.yaml whose times are the model's own, or multiples of
// them.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "planner/layers/stage.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/recording/recording_file.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/made_recording.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using Json = nlohmann::json;
using layers::Kernel;
using layers::Part;

const std::string kScenario = "tests/data/small_stowage.yaml";

class Recordings : public ::testing::Test {
protected:
    /// Pipeline rank 0, two microbatches; attention takes so many times what is estimated.
    std::string write(std::int64_t attention_times, const std::string& implementation = "stowage") {
        const std::filesystem::path source = std::filesystem::path(STOWAGE_SOURCE_DIR) / kScenario;
        const types::Scenario scenario = reader::read_scenario(source);
        const program::Durations durations(scenario.hardware, scenario.parallel);
        recording::Recording recording = tests::made_recording(
            layers::build_stage(scenario, 0), {.microbatches = 2, .steps = 2, .gap = types::Nanoseconds{500}},
            [&](const Kernel& kernel, const program::KernelName& name, std::int64_t, std::int64_t) {
                return (name.part == Part::core_attn ? attention_times : 1) * durations.estimate(kernel, name.phase);
            });
        recording.implementation = implementation;
        recording.scenario_name = "small_stowage";
        recording.scenario_text = support::file_text(source);
        recording.machine.device = "a round GPU";
        const std::filesystem::path path = folder_.path() / "r.json";
        support::write_text(path, recording::recording_text(recording));
        return path.string();
    }

    static Json simulated(const std::string& arguments) {
        const CommandResult result = stowage("simulate --quiet --json " + kScenario + arguments);
        EXPECT_EQ(result.code, 0) << result.error;
        return Json::parse(result.out);
    }

    support::TemporaryFolder folder_;
};

TEST_F(Recordings, OfTheModelsOwnTimesGiveItsOwnStep) {
    const Json without = simulated("");
    const Json with = simulated(" --recording " + write(1));
    EXPECT_FALSE(without.contains("durations"));
    EXPECT_EQ(with.at("predicted").at("step_time_us"), without.at("predicted").at("step_time_us"));
    const Json& durations = with.at("durations");
    EXPECT_EQ(durations.at("recording").at("scenario"), "small_stowage");
    EXPECT_EQ(durations.at("recording").at("gap_us"), 0.5);
    EXPECT_GT(durations.at("shares").at("measured"), 0.5);
    EXPECT_NEAR(with.at("predicted").at("step_time_error").get<double>(), 0, 1e-6);
}

TEST_F(Recordings, ChangeThePlannedStep) {
    const double once = simulated(" --recording " + write(1)).at("predicted").at("step_time_us");
    const double thrice = simulated(" --recording " + write(3)).at("predicted").at("step_time_us");
    EXPECT_GT(thrice, 1.1 * once);
}

TEST_F(Recordings, AreToldInWords) {
    const CommandResult result = stowage("plan " + kScenario + " --recording " + write(2));
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_NE(result.out.find("\nDurations of what pipeline rank 1 computes\n"
                              "  recorded: small_stowage, pipeline rank 0 on a round GPU; 2 steps, "),
              std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("% measured, 0.0 % recompute, 0.1 % scaled, "), std::string::npos) << result.out;
}

TEST_F(Recordings, ScaleToAnotherLength) {
    // Sequences of half the length: what depends on it is scaled.
    const std::filesystem::path longer = folder_.path() / "shorter.yaml";
    std::string text = support::file_text(std::filesystem::path(STOWAGE_SOURCE_DIR) / kScenario);
    text.replace(text.find("seq_length: 4096"), 16, "seq_length: 2048");
    support::write_text(longer, text);
    const CommandResult result = stowage("simulate --quiet --json " + longer.string() + " --recording " + write(1));
    ASSERT_EQ(result.code, 0) << result.error;
    const Json durations = Json::parse(result.out).at("durations");
    EXPECT_GT(durations.at("shares").at("scaled"), 0.5);
    EXPECT_EQ(durations.at("shares").at("measured"), 0);
}

TEST_F(Recordings, OfAnotherImplementationAreRefused) {
    const std::string path = write(1, "megatron");
    const CommandResult result = stowage("plan " + kScenario + " --recording " + path);
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.error.find(path + ": error: implementation: found 'megatron', expected 'stowage'"),
              std::string::npos)
        << result.error;
}

TEST_F(Recordings, ThatAreNotThereAreNamed) {
    const CommandResult result = stowage("plan " + kScenario + " --recording nowhere.json");
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.error.find("nowhere.json: error: "), std::string::npos) << result.error;
}

TEST_F(Recordings, WithoutAScenarioGiveTheirLayers) {
    const std::string path = write(1);
    recording::Recording recording = recording::read_recording(path);
    recording.source = "injected";
    recording.scenario_text.clear();
    support::write_text(path, recording::recording_text(recording));
    const Json simulation = simulated(" --recording " + path);
    EXPECT_EQ(simulation.at("implementation"), "recorded");
    EXPECT_EQ(simulation.at("durations").at("recording").at("layers"), 4);  // of rank 0 of two
}

TEST_F(Recordings, WithoutAnyLayerAreRefused) {
    const std::string path = write(1);
    recording::Recording recording = recording::read_recording(path);
    recording.scenario_text.clear();
    for (recording::Event& event : recording.steps.front().events) event.layer = -1;
    recording.steps.resize(1);
    support::write_text(path, recording::recording_text(recording));
    const CommandResult result = stowage("simulate " + kScenario + " --recording " + path);
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.error.find(path + ": error: sites: found no layer of the scenario"), std::string::npos)
        << result.error;
}

}  // namespace
}  // namespace stowage::cli
