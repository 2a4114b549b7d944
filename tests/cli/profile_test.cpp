// What 'stowage profile' does around its runs: the library it opens is a fake (fake_gpu.cpp).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "scenarios/recording/recording_file.hpp"
#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;

/// Two pipeline ranks, layers of our own, core_attn offloaded whole.
const std::string kOwn = "tests/data/small_stowage.yaml";

class Profile : public ::testing::Test {
protected:
    void SetUp() override { setenv("STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU, 1); }
    void TearDown() override {
        for (const char* name : {"STOWAGE_GPU_LIBRARY", "STOWAGE_FAKE_REQUEST", "STOWAGE_FAKE_ERROR"}) unsetenv(name);
    }

    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
    [[nodiscard]] CommandResult profile(const std::string& arguments) const {
        return stowage("profile --out " + path("r.json") + " " + arguments);
    }
    /// The values of a key in all that the library was asked, in that order.
    [[nodiscard]] std::vector<std::string> asked(const std::string& arguments, const std::string& key) const {
        setenv("STOWAGE_FAKE_REQUEST", path("asked").c_str(), 1);
        std::filesystem::remove(folder_ / "asked");
        const CommandResult result = profile("--quiet " + arguments);
        EXPECT_EQ(result.code, 0) << arguments << result.error;
        EXPECT_EQ(result.out + result.error, "") << arguments;
        std::istringstream lines(file_text(folder_ / "asked"));
        std::vector<std::string> values;
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(key + " ")) values.push_back(line.substr(key.size() + 1));
        return values;
    }

    TemporaryFolder folder_;
};

using Values = std::vector<std::string>;

// First eager steps with nothing offloaded, then the first iteration with everything.
TEST_F(Profile, RunsAStepThatKeepsAllAndAFirstIterationThatMovesAll) {
    EXPECT_EQ(asked(kOwn, "policy"), (Values{"none", "megatron"}));
    EXPECT_EQ(asked(kOwn, "first"), (Values{"0", "1"}));
    EXPECT_EQ(asked(kOwn, "recorded"), (Values{"3", "0"}));
    EXPECT_EQ(asked(kOwn, "steps"), (Values{"10", "10"}));
    EXPECT_EQ(asked(kOwn, "warmup_seconds"), (Values{"3", "3"}));
    EXPECT_EQ(asked(kOwn, "allocator"), (Values{"caching", "caching"}));
    EXPECT_EQ(asked(kOwn, "profile"), (Values{"0", "0"}));
    const Values modules = asked(kOwn, "modules");
    ASSERT_EQ(modules.size(), 2U);
    EXPECT_EQ(modules[0], "");
    for (const char* module : {"attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"})
        EXPECT_NE(modules[1].find(module), std::string::npos) << module;
}

TEST_F(Profile, RunsAStepWithGraphsWhereTheScenarioHasThem) {
    std::string text = file_text(STOWAGE_SOURCE_DIR "/" + kOwn);
    text += "cuda_graph: {cuda_graph_impl: transformer_engine, cuda_graph_modules: [attn]}\n";
    std::filesystem::create_directories(folder_ / "s");
    support::write_text(folder_ / "s/s.yaml", text);
    std::filesystem::copy(STOWAGE_SOURCE_DIR "/tests/data", folder_ / "s",
                          std::filesystem::copy_options::skip_existing);
    EXPECT_EQ(asked(path("s/s.yaml"), "recorded"), (Values{"1", "3", "0"}));
    std::vector<std::string> stages;
    for (const recording::Step& step : recording::read_recording(path("r.json")).steps) stages.push_back(step.stage);
    EXPECT_EQ(stages, (Values{"eager", "eager", "eager", "steady", "record"}));
}

TEST_F(Profile, HandsOnWhatTheCommandLineSays) {
    const std::string options =
        kOwn + " --rank 1 --steps 7 --warmup 2 --warmup-seconds 0.5 --recorded-steps 2 --no-groups --gemm-table " +
        path("t.json");
    EXPECT_EQ(asked(options, "rank"), Values{"1"});
    EXPECT_EQ(asked(options, "steps"), Values{"7"});
    EXPECT_EQ(asked(options, "warmup"), Values{"2"});
    EXPECT_EQ(asked(options, "warmup_seconds"), Values{"0.5"});
    EXPECT_EQ(asked(options, "recorded"), Values{"2"});
    EXPECT_EQ(asked(options, "gemm_table"), Values{path("t.json")});
    EXPECT_EQ(asked(kOwn, "rank"), (Values{"0", "0"}));  // the fullest of a 1F1B pipeline
}

TEST_F(Profile, WritesARecordingAndSaysWhatItHolds) {
    const CommandResult result = profile(kOwn + " --json --rank 0");
    ASSERT_EQ(result.code, 0) << result.error;
    const recording::Recording recording = recording::read_recording(path("r.json"));
    EXPECT_EQ(recording.source, "stowage");
    EXPECT_EQ(recording.implementation, "stowage");
    EXPECT_EQ(recording.scenario_text, file_text(STOWAGE_SOURCE_DIR "/" + kOwn));
    EXPECT_EQ(recording.machine.device, "a fake GPU");
    EXPECT_EQ(recording.step_times.size(), 10U);
    ASSERT_EQ(recording.steps.size(), 4U);
    EXPECT_EQ(recording.steps[0].stage, "eager");
    EXPECT_EQ(recording.steps[3].stage, "record");
    EXPECT_FALSE(recording.groups.empty());

    const json summary = json::parse(result.out);
    EXPECT_EQ(summary.at("schema"), "stowage/profile/1");
    EXPECT_EQ(summary.at("dropped"), 0);
    EXPECT_EQ(summary.at("unmatched"), 0);
    EXPECT_EQ(summary.at("steps").size(), 4U);
    // The fake's ten steps take 250,000 us and 1 us more each, its recorded ones 252,000 us.
    EXPECT_EQ(summary.at("step_time_us"), 250004.0);
    EXPECT_NEAR(summary.at("recording_cost").get<double>(), 252000.0 / 250004.5 - 1, 1e-9);
}

TEST_F(Profile, ShowsPeopleWhereTheTimeWent) {
    const CommandResult result = profile(kOwn);
    ASSERT_EQ(result.code, 0) << result.error;
    for (const char* words : {"pipeline rank 0 recorded, layers as stowage runs them", "a fake GPU",
                              "0 records dropped, 0 activities without a mark", "Time of the device in a step (eager)",
                              "core_attn", "Kept for the backward by one microbatch"})
        EXPECT_NE(result.out.find(words), std::string::npos) << words << "\n" << result.out;
    EXPECT_NE(result.error.find("stowage: wrote " + path("r.json")), std::string::npos) << result.error;
}

TEST_F(Profile, ExitsWithTwoOnAWrongCommandLine) {
    for (const char* options : {"--rank -1", "--rank 2", "--steps 0", "--recorded-steps 0", "--recorded-steps 64",
                                "--warmup-seconds soon", "--gemm-table tests/data/small_stowage.yaml"}) {
        const CommandResult result = profile(kOwn + " " + options);
        EXPECT_EQ(result.code, 2) << options;
        EXPECT_NE(result.error, "") << options;
    }
    EXPECT_EQ(stowage("profile " + kOwn).code, 2) << "without --out";
    EXPECT_EQ(stowage("profile " + kOwn + " --out " + kOwn).code, 2);
    EXPECT_EQ(folder_.listing(), "");
}

TEST_F(Profile, RefusesFilesThatAreNoScenarioOfItsOwnLayers) {
    const CommandResult other = profile("tests/data/small.yaml");
    EXPECT_EQ(other.code, 3);
    EXPECT_NE(other.error.find("found megatron, whose layers do not run here"), std::string::npos) << other.error;
    support::write_text(folder_ / "p.json", "{}");
    EXPECT_EQ(profile(path("p.json")).code, 3);
}

TEST_F(Profile, TakesACommandInPlaceOfAScenario) {
    setenv("STOWAGE_INJECT_LIBRARY", "/no/such.so", 1);
    const CommandResult result = profile("-- true --out x --rank 7");
    unsetenv("STOWAGE_INJECT_LIBRARY");
    EXPECT_EQ(result.code, 5);
    EXPECT_EQ(result.error, "stowage: error: STOWAGE_INJECT_LIBRARY names no file: /no/such.so\n");
    EXPECT_EQ(profile(kOwn + " -- true").code, 2);
    EXPECT_EQ(profile("--").code, 2);
    EXPECT_EQ(profile("").code, 2);
    EXPECT_EQ(folder_.listing(), "");
}

// The fake is no library that the driver would load into a command, but that shows only where CUDA is used.
TEST_F(Profile, SaysThatACommandFailedOrLeftNothing) {
    setenv("STOWAGE_INJECT_LIBRARY", STOWAGE_FAKE_GPU, 1);
    const CommandResult failed = profile("-- sh -c 'exit 3'");
    const CommandResult idle = profile("--json -- echo said");
    unsetenv("STOWAGE_INJECT_LIBRARY");
    EXPECT_EQ(failed.code, 4);
    EXPECT_EQ(failed.error, "stowage: error: profile: the command ended with 3: nothing is written\n");
    EXPECT_EQ(idle.code, 5);
    EXPECT_EQ(idle.out, "") << "what the command says is no answer";
    EXPECT_NE(idle.error.find("said\n"), std::string::npos);
    EXPECT_NE(idle.error.find("nothing was recorded: no process of the command initialised CUDA"), std::string::npos)
        << idle.error;
    EXPECT_EQ(folder_.listing(), "");
}

TEST_F(Profile, LeavesNothingHalfWrittenWhereTheDeviceFails) {
    setenv("STOWAGE_FAKE_ERROR", "device", 1);
    const CommandResult result = profile(kOwn);
    EXPECT_EQ(result.code, 5);
    EXPECT_NE(result.error.find("there is no device here"), std::string::npos);
    EXPECT_EQ(folder_.listing(), "");
}

}  // namespace
}  // namespace stowage::cli
