// What 'stowage validate' does around its runs; the library it opens is a fake (fake_gpu.cpp) that takes 250 ms a step.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;
using support::write_text;

const std::string kOwn = "tests/data/small_stowage.yaml";

std::int64_t count_of(const std::string& text, const std::string& words) {
    std::int64_t count = 0;
    for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++count;
    return count;
}

class ValidateRun : public ::testing::Test {
protected:
    void SetUp() override {
        setenv("STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU, 1);
        setenv("STOWAGE_FAKE_REQUEST", path("asked").c_str(), 1);
        setenv("STOWAGE_FAKE_APPEND", "1", 1);
        write_text(folder_ / "list.yaml",
                   "schema: stowage/validation/1\nscenario: " STOWAGE_SOURCE_DIR "/" + kOwn +
                       "\nslices:\n  - {name: eight}\n  - {name: twelve, model: {num_layers: 12}}\n"
                       "variants:\n  - {name: nothing, policy: none}\n  - {name: all, policy: megatron}\n"
                       "  - {name: own, policy: stowage}\n");
    }
    void TearDown() override {
        for (const char* name :
             {"STOWAGE_GPU_LIBRARY", "STOWAGE_FAKE_REQUEST", "STOWAGE_FAKE_APPEND", "STOWAGE_FAKE_ERROR"})
            unsetenv(name);
    }
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }
    /// Executions so far that measured, and those that recorded.
    [[nodiscard]] std::int64_t runs() const { return asked_for("\nrank ") - recordings(); }
    [[nodiscard]] std::int64_t recordings() const { return asked_for("\nrecorded "); }
    [[nodiscard]] std::int64_t asked_for(const std::string& words) const {
        return std::filesystem::exists(folder_ / "asked") ? count_of("\n" + file_text(folder_ / "asked"), words) : 0;
    }
    [[nodiscard]] std::string run_list(const std::string& options = {}) const {
        return "validate --run " + path("list.yaml") + " --out " + path("out") + " " + options;
    }

    TemporaryFolder folder_;
};

json rows_of(const json& answer, const std::string& quantity) {
    json rows = json::array();
    for (const json& row : answer.at("rows"))
        if (row.at("quantity") == quantity) rows.push_back(row);
    return rows;
}

TEST_F(ValidateRun, SetsEveryConfigurationBesideItsPrediction) {
    const CommandResult result = stowage(run_list("--json"));
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(runs(), 6);
    EXPECT_EQ(recordings(), 2) << "one a slice";
    const json answer = json::parse(result.out);
    EXPECT_EQ(answer.at("schema"), "stowage/comparison/1");
    const json steps = rows_of(answer, "step_time_us");
    ASSERT_EQ(steps.size(), 6U);
    EXPECT_EQ(steps[0].at("name"), "list/eight/nothing");
    // The fake takes 250,000 us and one more each step; some 1.5 s of the predicted step are asked for.
    EXPECT_NEAR(steps[0].at("measured").get<double>(), 250'000, 20);
    EXPECT_GT(steps[0].at("predicted").get<double>(), 1000);
    EXPECT_DOUBLE_EQ(steps[0].at("error").get<double>(),
                     steps[0].at("predicted").get<double>() / steps[0].at("measured").get<double>() - 1);
    for (const json& row : steps) {
        const double from_recording = row.at("predicted_from_recording").get<double>();
        EXPECT_DOUBLE_EQ(row.at("error_from_recording").get<double>(),
                         from_recording / row.at("measured").get<double>() - 1);
        EXPECT_NE(from_recording, row.at("predicted").get<double>()) << "the fake's kernels take a microsecond each";
    }
    EXPECT_EQ(answer.at("summary").at("step_time_us").at("rows"), 6);
    // The fake says 1.5 ms of 250 where nothing leaves: 0.6 % of the step.
    EXPECT_NEAR(rows_of(answer, "exposed_copy_us")[0].at("error").get<double>(), -0.006, 1e-6);
    EXPECT_EQ(rows_of(answer, "reserved_bytes_planned").size(), 2U) << "policy stowage of both slices";
    EXPECT_EQ(rows_of(answer, "reserved_bytes_caching").size(), 4U);
}

TEST_F(ValidateRun, GoesOnWhereItWas) {
    ASSERT_EQ(stowage(run_list("--quiet --only twelve")).code, 0);
    EXPECT_EQ(runs(), 3);
    const CommandResult result = stowage(run_list("--json"));
    EXPECT_EQ(runs(), 6);
    EXPECT_EQ(recordings(), 2);
    EXPECT_EQ(count_of(result.error, "is there already"), 3) << result.error;
    const CommandResult again = stowage(run_list("--json"));
    EXPECT_EQ(runs(), 6);
    EXPECT_EQ(json::parse(again.out).at("rows"), json::parse(result.out).at("rows"));
    // Without --run what is there is compared.
    const CommandResult compared = stowage("validate --json " + path("list.yaml") + " --out " + path("out"));
    EXPECT_EQ(compared.code, 0) << compared.error;
    EXPECT_EQ(json::parse(compared.out).at("rows"), json::parse(result.out).at("rows"));
    // A broken file is none.
    bool measurement = false;
    bool recording = false;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "out")) {
        bool& broken = entry.path().filename().string().starts_with("recording-") ? recording : measurement;
        if (!std::exchange(broken, true)) write_text(entry.path(), "{");
    }
    (void)stowage(run_list("--quiet"));
    EXPECT_EQ(runs(), 7);
    EXPECT_LE(recordings(), 3) << "only where a run of the slice is missing too";
}

TEST_F(ValidateRun, ComparesMeasurementFilesAndFoldersOfThem) {
    ASSERT_EQ(stowage("execute --quiet " + kOwn + " --out " + path("m.json")).code, 0);
    const CommandResult one = stowage("validate --json " + path("m.json"));
    ASSERT_EQ(one.code, 0) << one.error;
    EXPECT_EQ(rows_of(json::parse(one.out), "step_time_us")[0].at("name"), "m");
    const CommandResult folder = stowage("validate --json " + folder_.path().string());
    ASSERT_EQ(folder.code, 0) << folder.error;
    const json answer = json::parse(folder.out);
    EXPECT_EQ(rows_of(answer, "step_time_us").size(), 7U) << "the measurement, and six predictions of the list";
    EXPECT_EQ(answer.at("not_measured").size(), 6U);
}

// Cut off or garbled: nothing is compared without it. What is JSON of another kind is nobody's.
TEST_F(ValidateRun, PassesOverOtherFilesOfAFolderButNotDamagedOnes) {
    ASSERT_EQ(stowage("execute --quiet " + kOwn + " --out " + path("m.json")).code, 0);
    std::filesystem::remove(folder_ / "list.yaml");
    const std::string whole = file_text(folder_ / "m.json");
    write_text(folder_ / "table.json", "{\"schema\": \"other/1\"}");
    write_text(folder_ / "list.json", "[]");
    EXPECT_EQ(stowage("validate --quiet " + folder_.path().string()).code, 0);
    for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string(), std::string("\xff{")}) {
        write_text(folder_ / "m.json", damaged);
        const CommandResult result = stowage("validate " + folder_.path().string());
        EXPECT_EQ(result.code, 3);
        EXPECT_NE(result.error.find(path("m.json") + ": error: not JSON"), std::string::npos) << result.error;
    }
}

TEST_F(ValidateRun, ReadsThePlansOfAFolder) {
    std::filesystem::remove(folder_ / "list.yaml");
    ASSERT_EQ(stowage("plan --quiet " + kOwn + " --out " + path("p.json")).code, 0);
    const CommandResult result = stowage("validate --json " + folder_.path().string());
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(rows_of(json::parse(result.out), "step_time_us")[0].at("name"), "p");
}

// Each was an error of ours, without the file's name.
TEST_F(ValidateRun, RefusesNumbersOfAMeasurementThatItsScenarioDoesNotHave) {
    ASSERT_EQ(stowage("execute --quiet " + kOwn + " --out " + path("m.json")).code, 0);
    const json whole = json::parse(file_text(folder_ / "m.json"));
    const auto refusal = [&](const json::json_pointer& key, const json& value) {
        json edited = whole;
        edited[key] = value;
        write_text(folder_ / "e.json", edited.dump());
        const CommandResult result = stowage("validate " + path("e.json"));
        EXPECT_EQ(result.code, 3) << key;
        return result.error;
    };
    const std::string begin = path("e.json") + ": error: not as stowage writes it: ";
    using Pointer = json::json_pointer;
    const auto last = whole.at("scenario").at("parallel").at("pipeline_model_parallel_size").get<int>() - 1;
    EXPECT_EQ(refusal(Pointer("/pipeline_rank"), last + 1), begin + "pipeline_rank: found " + std::to_string(last + 1) +
                                                                ", expected a pipeline rank from 0 to " +
                                                                std::to_string(last) + "\n");
    EXPECT_EQ(refusal(Pointer("/choice/activation_offload_fraction"), 1.5),
              begin + "choice.activation_offload_fraction: found 1.5, expected a number from 0 to 1\n");
    EXPECT_EQ(refusal(Pointer("/choice/fine_grained_offloading_max_inflight_offloads"), -1),
              begin +
                  "choice.fine_grained_offloading_max_inflight_offloads: found -1, expected a whole number from 0 to "
                  "1000000000000000\n");
}

TEST_F(ValidateRun, RecordsNothingUnlessItIsWanted) {
    const CommandResult result = stowage(run_list("--json --no-recording"));
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(recordings(), 0);
    EXPECT_TRUE(rows_of(json::parse(result.out), "step_time_us")[0].at("error_from_recording").is_null());
}

// What a recording is of has neither graphs nor offloading, whatever the configuration that asked for it has.
TEST_F(ValidateRun, RecordsTheSliceEagerWithNothingOffloaded) {
    ASSERT_EQ(stowage("validate --run --quiet " + kOwn + " --policy stowage").code, 0);
    const std::string asked = file_text(folder_ / "asked");
    const std::string recording = asked.substr(0, asked.find("\nrank ", asked.find("\nrank ") + 1) + 1);
    for (const char* line : {"recorded 3\n", "policy none\n", "allocator caching\n", "modules \n", "profile 0\n"})
        EXPECT_NE(recording.find(line), std::string::npos) << line << recording;
}

TEST_F(ValidateRun, TellsAFailureAndGoesOn) {
    setenv("STOWAGE_FAKE_ERROR", "planned", 1);
    const CommandResult result = stowage(run_list("--json"));
    EXPECT_EQ(result.code, 4) << result.error;
    const json answer = json::parse(result.out);
    ASSERT_EQ(answer.at("failed").size(), 2U);
    EXPECT_EQ(answer.at("failed")[0].at("name"), "list/eight/own");
    EXPECT_EQ(rows_of(answer, "step_time_us").size(), 4U);
}

TEST_F(ValidateRun, BeginsNothingThatDoesNotFitTheTimeLimit) {
    const CommandResult result = stowage(run_list("--json --time-limit 1"));
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(runs(), 0);
    EXPECT_EQ(json::parse(result.out).at("not_measured").size(), 6U);
}

TEST_F(ValidateRun, KeepsASliceInOneShard) {
    ASSERT_EQ(stowage(run_list("--quiet --shard 1/2")).code, 0);
    EXPECT_EQ(runs(), 3);
    EXPECT_EQ(count_of(file_text(folder_ / "asked"), "policy stowage"), 1);
    ASSERT_EQ(stowage(run_list("--quiet --shard 2/2")).code, 0);
    EXPECT_EQ(runs(), 6);
    const CommandResult wrong = stowage(run_list("--shard 3/2"));
    EXPECT_EQ(wrong.code, 2);
    EXPECT_EQ(wrong.error, "stowage: error: --shard: found '3/2', expected i/n with i from 1 to n\n");
}

TEST_F(ValidateRun, RunsAScenarioAsItIsTold) {
    const CommandResult result =
        stowage("validate --run --quiet " + kOwn + " --policy none --allocator planned --rank 1 --steps 4");
    ASSERT_EQ(result.code, 0) << result.error;
    const std::string asked = file_text(folder_ / "asked");
    for (const char* line : {"rank 1\n", "policy none\n", "allocator planned\n", "steps 4\n", "warmup_seconds 1.25\n"})
        EXPECT_NE(asked.find(line), std::string::npos) << line << asked;
}

TEST_F(ValidateRun, EndsWithFourWhereABarIsMissed) {
    const std::string bar = " --bar hardware.step_time_us.max=";
    EXPECT_EQ(stowage("validate --run --quiet " + kOwn + bar + "1000").code, 0);
    const CommandResult missed = stowage("validate --run --json " + kOwn + bar + "0.001");
    EXPECT_EQ(missed.code, 4);
    EXPECT_EQ(json::parse(missed.out).at("bars")[0].at("met"), false);
    EXPECT_EQ(stowage("validate --run --quiet " + kOwn + " --bar recording.pairs.wrong=0").code, 0);
    EXPECT_EQ(stowage("validate --run " + kOwn + " --bar step=1").code, 2);
}

TEST_F(ValidateRun, WritesAPage) {
    const CommandResult result = stowage(run_list("--quiet --date 2026-11-30 --report " + path("page.md")));
    ASSERT_EQ(result.code, 0) << result.error;
    const std::string page = file_text(folder_ / "page.md");
    EXPECT_NE(page.find("2026-11-30, a fake GPU"), std::string::npos) << page;
    EXPECT_NE(page.find("    stowage validate --run "), std::string::npos);
    EXPECT_NE(page.find("| list/twelve/own | stowage | none |"), std::string::npos);
    ASSERT_EQ(stowage(run_list("--quiet --date 2026-11-30 --report " + path("again.md"))).code, 0);
    EXPECT_EQ(file_text(folder_ / "again.md"), page);
}

TEST_F(ValidateRun, RefusesWhatDoesNotGoTogether) {
    EXPECT_EQ(stowage("validate").code, 2);
    EXPECT_EQ(stowage("validate --time-limit 3 " + kOwn).code, 2);
    EXPECT_EQ(stowage("validate --run --policy none " + path("list.yaml")).code, 2);
    EXPECT_EQ(stowage("validate --run --megatron-memory x.yaml " + kOwn).code, 2);
    EXPECT_EQ(stowage("validate --run missing.yaml").code, 3);
}

// Every configuration that is shipped can be predicted.
TEST_F(ValidateRun, PredictsTheWholeGrid) {
    const CommandResult result = stowage("validate --json scenarios/validation");
    ASSERT_EQ(result.code, 0) << result.error;
    const json answer = json::parse(result.out);
    EXPECT_TRUE(answer.at("failed").empty()) << answer.at("failed");
    EXPECT_GE(rows_of(answer, "step_time_us").size(), 60U);
    for (const json& row : rows_of(answer, "step_time_us")) {
        EXPECT_GT(row.at("predicted").get<double>(), 5e3) << row;
        EXPECT_LT(row.at("predicted").get<double>(), 0.7e6) << row << " takes too long to run in 8 s";
    }
}

}  // namespace
}  // namespace stowage::cli
