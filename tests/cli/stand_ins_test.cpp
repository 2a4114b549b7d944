// 'stowage execute --stand-ins' up to the library that would run them, which is a fake here (fake_gpu.cpp).

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;

const std::string kRecorded = "scenarios/dense-8x4096.yaml";
const std::string kRecording = "scenarios/recordings/dense-8x4096.json";

class StandIns : public ::testing::Test {
protected:
    void SetUp() override {
        setenv("STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU, 1);
        setenv("STOWAGE_FAKE_REQUEST", path("asked").c_str(), 1);
    }
    void TearDown() override {
        unsetenv("STOWAGE_GPU_LIBRARY");
        unsetenv("STOWAGE_FAKE_REQUEST");
    }
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

    /// What the library was asked, by the first word of its line.
    std::string asked(const std::string& arguments, const std::string& key) const {
        const CommandResult result = stowage("execute --quiet --stand-ins " + arguments);
        EXPECT_EQ(result.code, 0) << arguments << result.error;
        std::istringstream lines(file_text(folder_ / "asked"));
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(key + " ")) return line.substr(key.size() + 1);
        return "no line " + key;
    }

    static CommandResult refused(const std::string& arguments, int code) {
        const CommandResult result = stowage("execute " + arguments);
        EXPECT_EQ(result.code, code) << arguments;
        EXPECT_EQ(result.out, "") << arguments;
        return result;
    }

    /// tests/data/small.yaml with something else in one place.
    [[nodiscard]] std::string with(const std::string& before, const std::string& after) const {
        std::string text = file_text(STOWAGE_SOURCE_DIR "/" + kSmall);
        const std::size_t at = text.find(before);
        EXPECT_NE(at, std::string::npos) << before;
        support::write_text(folder_ / "s.yaml", text.replace(at, before.size(), after));
        return path("s.yaml");
    }

    support::TemporaryFolder folder_;
};

TEST_F(StandIns, RunLayersOfMegatron) {
    EXPECT_GT(std::stoi(asked(kSmall, "stand_ins")), 30);
    EXPECT_EQ(asked(kSmall + " --policy none", "policy"), "none");
    EXPECT_EQ(asked(kSmall + " --policy stowage", "allocator"), "planned");
}

TEST_F(StandIns, RunAPlanOfMegatronsLayers) {
    ASSERT_EQ(stowage("plan --quiet " + kSmall + " --device-memory 3.2GiB --out " + path("p.json")).code, 0);
    EXPECT_GT(std::stoi(asked(path("p.json"), "stand_ins")), 30);
    EXPECT_NE(asked(path("p.json"), "modules"), "");
}

// Memory and copies are those that a simulation of Megatron's layers predicts.
TEST_F(StandIns, KeepTheMemoryThatIsPredicted) {
    const std::string scenario = with("offload_modules: auto, activation_offload_fraction: auto",
                                      "offload_modules: [core_attn, attn_proj], activation_offload_fraction: 1.0");
    const json simulation = json::parse(stowage("simulate --json --quiet " + scenario).out);
    const json measurement = json::parse(stowage("execute --json --quiet --stand-ins --rank 0 " + scenario).out);
    const json& rank = simulation.at("ranks").at(0);
    const json& predicted = measurement.at("predicted");
    EXPECT_EQ(predicted.at("peak_allocated_bytes"), rank.at("later_iterations").at("peak_allocated_bytes"));
    EXPECT_EQ(predicted.at("peak_reserved_bytes"), rank.at("later_iterations").at("peak_reserved_bytes"));
    EXPECT_EQ(predicted.at("pinned_bytes"), rank.at("pinned_arena_bytes"));
}

TEST_F(StandIns, TakeTheirTimesFromARecording) {
    const long estimated = std::stol(asked(kRecorded, "stand_in_ns"));
    const long recorded = std::stol(asked(kRecorded + " --recording " + kRecording, "stand_in_ns"));
    EXPECT_NE(recorded, estimated);
    EXPECT_NEAR(static_cast<double>(recorded) / static_cast<double>(estimated), 1.0, 0.3) << "of the same kernels";
    // The prediction beside it is made of the same times.
    const json simulation =
        json::parse(stowage("simulate --json --quiet " + kRecorded + " --recording " + kRecording).out);
    const json measurement =
        json::parse(stowage("execute --json --quiet --stand-ins " + kRecorded + " --recording " + kRecording).out);
    EXPECT_EQ(measurement.at("predicted").at("step_time_us"), simulation.at("ranks").at(0).at("step_time_us"));
}

TEST_F(StandIns, AreNamedWhereLayersAreRefused) {
    const CommandResult result = refused(kSmall, 3);
    EXPECT_NE(result.error.find("'stowage execute --stand-ins' runs work of the same class, length and traffic"),
              std::string::npos)
        << result.error;
}

TEST_F(StandIns, RefuseChunksThatRunSideBySideAtTheirPlace) {
    const std::string scenario =
        with("parallel: {pipeline_model_parallel_size: 4,",
             "parallel: {pipeline_model_parallel_size: 4, overlap_moe_expert_parallel_comm: true,");
    const CommandResult result = refused("--stand-ins " + scenario, 3);
    EXPECT_EQ(result.error.find(scenario + ":12:79: error: "), 0U) << result.error;
    EXPECT_NE(result.error.find("error: parallel.overlap_moe_expert_parallel_comm: found true, but stand-ins of chunks "
                                "that run side by side are not executed\n"),
              std::string::npos)
        << result.error;
    EXPECT_NE(result.error.find("hint: set it to false"), std::string::npos) << result.error;
}

TEST_F(StandIns, RefuseARecordingThatCannotBeRead) {
    const CommandResult result = refused("--stand-ins " + kSmall + " --recording " + path("no.json"), 3);
    EXPECT_NE(result.error.find("\n" + path("no.json") + ": error: "), std::string::npos) << result.error;
    const CommandResult other = refused("--stand-ins " + kSmall + " --recording " + kRecording, 3);
    EXPECT_NE(other.error.find("\n" + kRecording + ": error: implementation: found 'stowage', expected 'megatron'"),
              std::string::npos)
        << other.error;
}

TEST_F(StandIns, RefuseOptionsThatSayNothingOfThem) {
    EXPECT_EQ(refused(kRecorded + " --recording " + kRecording, 2).error,
              "stowage: error: --recording gives stand-ins their times: add --stand-ins\n");
    EXPECT_EQ(refused("--stand-ins --routing-skew 2 " + kSmall, 2).error,
              "stowage: error: --routing-skew sends tokens to experts, and stand-ins have neither\n");
    EXPECT_EQ(refused("--stand-ins --dump d " + kSmall, 2).error,
              "stowage: error: --dump writes parameters, tokens and losses, and stand-ins have none\n");
}

}  // namespace
}  // namespace stowage::cli
