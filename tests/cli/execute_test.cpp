// What 'stowage execute' does around a run: the library it opens is a fake (fake_gpu.cpp), so that all of it but the
// run itself happens here without a GPU.
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/gpu/gpu_version.hpp"
#include "tests/cli/command.hpp"
#include "tests/reports/trace_rules.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;

/// Two pipeline ranks, layers of our own, core_attn offloaded whole.
const std::string kOwn = "tests/data/small_stowage.yaml";

/// A variable of the environment for one test.
class Variable {
public:
    Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
    Variable(const Variable&) = delete;
    Variable(Variable&&) = delete;
    Variable& operator=(const Variable&) = delete;
    Variable& operator=(Variable&&) = delete;
    ~Variable() { unsetenv(name_); }

private:
    const char* name_;
};

class Execute : public ::testing::Test {
protected:
    [[nodiscard]] std::string path(const std::string& name) const { return (folder_ / name).string(); }

    /// What the library was asked, line by line.
    std::string asked(const std::string& arguments) const {
        const Variable request("STOWAGE_FAKE_REQUEST", path("asked"));
        const CommandResult result = stowage("execute --quiet " + arguments);
        EXPECT_EQ(result.code, 0) << arguments << result.error;
        EXPECT_EQ(result.out + result.error, "") << arguments;
        return file_text(folder_ / "asked");
    }

    static std::string line_of(const std::string& text, const std::string& key) {
        std::istringstream lines(text);
        for (std::string line; std::getline(lines, line);)
            if (line.starts_with(key + " ")) return line.substr(key.size() + 1);
        return "no line " + key;
    }

    /// The scenario of these tests with something else in one place.
    [[nodiscard]] std::string with(const std::string& before, const std::string& after) const {
        std::string text = file_text(STOWAGE_SOURCE_DIR "/" + kOwn);
        const std::size_t at = text.find(before);
        EXPECT_NE(at, std::string::npos) << before;
        support::write_text(folder_ / "s.yaml", text.replace(at, before.size(), after));
        return path("s.yaml");
    }

    TemporaryFolder folder_;
    Variable library_{"STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU};
};

TEST_F(Execute, WritesAMeasurementBesideItsPrediction) {
    const CommandResult result = stowage("execute --json " + kOwn + " --out " + path("m.json"));
    ASSERT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(result.out, file_text(folder_ / "m.json"));
    EXPECT_EQ(result.error, "stowage: warming up\nstowage: wrote " + path("m.json") + "\n");
    const json measurement = json::parse(result.out);
    EXPECT_EQ(measurement.at("schema"), "stowage/measurement/1");
    EXPECT_EQ(measurement.at("policy"), "megatron");
    EXPECT_EQ(measurement.at("choice").at("offload_modules"), json::parse(R"(["core_attn"])"));
    EXPECT_EQ(measurement.at("losses"), json::parse("[8.25, 8.5]"));
    EXPECT_EQ(measurement.at("digests").at("run"), "fedcba9876543210");
    // The fake's 20 steps take 250,000 us and 1 us more each; of 20 the 10th is in the middle, 2nd and 18th are p10,
    // p90.
    const json& times = measurement.at("step_time_us");
    EXPECT_EQ(times.at("all").size(), 20U);
    EXPECT_EQ(times.at("smallest"), 250000.0);
    EXPECT_EQ(times.at("largest"), 250019.0);
    EXPECT_EQ(times.at("median"), 250009.0);
    EXPECT_EQ(times.at("p10"), 250001.0);
    EXPECT_EQ(times.at("p90"), 250017.0);
}

// What 'simulate' says of the same scenario is the prediction.
TEST_F(Execute, PredictsAsASimulationOfTheSameChoiceDoes) {
    const json simulation = json::parse(stowage("simulate --json " + kOwn).out);
    for (const int number : {0, 1}) {
        const std::string option = " --rank " + std::to_string(number);
        const json measurement = json::parse(stowage("execute --json --quiet " + kOwn + option).out);
        const json& rank = simulation.at("ranks")[static_cast<std::size_t>(number)];
        const json& predicted = measurement.at("predicted");
        EXPECT_EQ(measurement.at("pipeline_rank"), number);
        EXPECT_EQ(predicted.at("step_time_us"), rank.at("step_time_us"));
        EXPECT_EQ(predicted.at("peak_allocated_bytes"), rank.at("later_iterations").at("peak_allocated_bytes"));
        EXPECT_EQ(predicted.at("peak_reserved_bytes"), rank.at("later_iterations").at("peak_reserved_bytes"));
        EXPECT_EQ(predicted.at("pinned_bytes"), rank.at("pinned_arena_bytes"));
        const double error = predicted.at("step_time_us").get<double>() / 250009.0 - 1;
        EXPECT_DOUBLE_EQ(measurement.at("errors").at("step_time").get<double>(), error);
    }
}

TEST_F(Execute, RunsTheFullestRankUnlessAnotherIsNamed) {
    // Rank 0 of a 1F1B pipeline holds the activations of most microbatches.
    EXPECT_EQ(line_of(asked(kOwn), "rank"), "0");
    EXPECT_EQ(line_of(asked(kOwn + " --rank 1"), "rank"), "1");
    const CommandResult result = stowage("execute " + kOwn + " --rank 2");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.error, "stowage: error: --rank: found 2, expected a pipeline rank from 0 to 1\n");
}

TEST_F(Execute, TakesMegatronsPolicyWhereSomethingIsOffloadedAndNoneElsewhere) {
    EXPECT_EQ(line_of(asked(kOwn), "policy"), "megatron");
    EXPECT_EQ(line_of(asked(kOwn), "modules"), "core_attn");
    EXPECT_EQ(line_of(asked(kOwn), "allocator"), "caching");
    const std::string nothing = asked(with("offload_modules: [core_attn]", "offload_modules: []"));
    EXPECT_EQ(line_of(nothing, "policy"), "none");
    const std::string none = asked(kOwn + " --policy none");
    EXPECT_EQ(line_of(none, "policy"), "none");
    EXPECT_EQ(line_of(none, "modules"), "");
}

TEST_F(Execute, GivesPolicyStowageTheGroupsThatLeaveAndFixedAddresses) {
    const std::string all = asked(kOwn + " --policy stowage");
    EXPECT_EQ(line_of(all, "policy"), "stowage");
    EXPECT_EQ(line_of(all, "allocator"), "planned");
    EXPECT_EQ(line_of(all, "layer 0"), "core_attn");
    EXPECT_EQ(line_of(all, "layer 6"), "core_attn");
    EXPECT_EQ(all.find("layer 7 core_attn"), std::string::npos) << "its backward comes first: it never leaves";
    // A layer's core_attn group is more than a byte and reaches any number of bytes up to its size alone.
    const std::string one = asked(kOwn + " --policy stowage --offload-bytes 1 --reload-ahead 3 --join-after 1");
    EXPECT_EQ(line_of(one, "reload_ahead"), "3");
    EXPECT_EQ(line_of(one, "join_after"), "1");
    EXPECT_EQ(line_of(one, "layer 0"), "core_attn");
    EXPECT_EQ(line_of(one, "layer 1"), "");
    EXPECT_EQ(line_of(asked(kOwn + " --policy stowage --allocator caching"), "allocator"), "caching");
}

TEST_F(Execute, LetsEveryModuleLeaveUnderPolicyStowageWhereTheScenarioNamesNone) {
    const std::string nothing = with("offload_modules: [core_attn]", "offload_modules: []");
    const std::string modules = line_of(asked(nothing + " --policy stowage"), "modules");
    for (const char* module : {"qkv_linear", "core_attn", "attn_proj"})
        EXPECT_NE(modules.find(module), std::string::npos) << module << " is not in " << modules;
    EXPECT_EQ(modules.find("expert_fc1"), std::string::npos) << "no layer has it";
}

TEST_F(Execute, SaysThatNoMoreBytesCanLeave) {
    const CommandResult result = stowage("execute " + kOwn + " --policy stowage --offload-bytes 1TB");
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.error.find("bytes of a microbatch can leave pipeline rank 1, all do\n"), std::string::npos)
        << result.error;
}

TEST_F(Execute, HandsOnWhatTheCommandLineSays) {
    const std::string defaults = asked(kOwn);
    EXPECT_EQ(line_of(defaults, "steps"), "20");
    EXPECT_EQ(line_of(defaults, "warmup"), "5");
    EXPECT_EQ(line_of(defaults, "seed"), "1");
    EXPECT_EQ(line_of(defaults, "profile"), "1");
    EXPECT_EQ(line_of(defaults, "spin") + line_of(defaults, "poison") + line_of(defaults, "fences"), "-00");
    const std::string all = asked(kOwn +
                                  " --steps 7 --warmup 0 --warmup-seconds 1.5 --seed 18446744073709551615 --verify"
                                  " --no-profile --gemm-table t.json --spin 9 --poison --fences");
    EXPECT_EQ(line_of(all, "steps"), "7");
    EXPECT_EQ(line_of(all, "warmup"), "0");
    EXPECT_EQ(line_of(all, "warmup_seconds"), "1.5");
    EXPECT_EQ(line_of(all, "seed"), "18446744073709551615");
    EXPECT_EQ(line_of(all, "verify"), "1");
    EXPECT_EQ(line_of(all, "profile"), "0");
    EXPECT_EQ(line_of(all, "gemm_table"), "t.json");
    EXPECT_EQ(line_of(all, "spin"), "9");
    EXPECT_EQ(line_of(all, "poison"), "1");
    EXPECT_EQ(line_of(all, "fences"), "1");
    EXPECT_EQ(line_of(asked(kOwn + " --policy stowage --fences"), "allocator"), "caching");
}

// The prediction beside the measurement is of an allocator that is set up so.
TEST_F(Execute, SetsTheCachingAllocatorUpAsTheEnvironmentOfTheScenarioSays) {
    EXPECT_EQ(line_of(asked(kOwn), "expandable_segments"), "0");
    const std::string scenario =
        with("NVTE_CPU_OFFLOAD_V1: 1", "NVTE_CPU_OFFLOAD_V1: 1, PYTORCH_CUDA_ALLOC_CONF: 'expandable_segments:True'");
    EXPECT_EQ(line_of(asked(scenario), "expandable_segments"), "1");
}

TEST_F(Execute, ClaimsNoStepTimeUnderModesThatFindFaults) {
    const json measurement = json::parse(stowage("execute --json --quiet " + kOwn + " --spin 3 --poison").out);
    EXPECT_EQ(measurement.at("debug_modes"), json::parse(R"(["spin 3", "poison"])"));
    EXPECT_TRUE(measurement.at("errors").at("step_time").is_null());
    const json verified = json::parse(stowage("execute --json --quiet " + kOwn + " --verify --steps 3").out);
    EXPECT_TRUE(verified.at("step_time_us").is_null());
    EXPECT_EQ(verified.at("digests").at("steps"), 3);
}

TEST_F(Execute, ExitsWithTwoOnAWrongCommandLine) {
    for (const char* options : {"--rank -1",
                                "--policy all",
                                "--allocator pool",
                                "--steps 0",
                                "--steps many",
                                "--warmup -1",
                                "--warmup-seconds soon",
                                "--seed -1",
                                "--spin x",
                                "--no-profile --trace t.json",
                                "--policy stowage --allocator planned --fences",
                                "--offload-bytes 1GB",
                                "--reload-ahead 2",
                                "--policy none --join-after 2",
                                "--policy stowage --offload-bytes much",
                                "--policy stowage --reload-ahead 0",
                                "--seed 18446744073709551616",
                                "--spin 1e3",
                                "--rank 1000001",
                                "--dump ''",
                                "--gemm-table ''",
                                "--gemm-table t --out t",
                                "--gemm-table t --trace ./t",
                                "--gemm-table tests/data/small_stowage.yaml",
                                "--out tests/data/small_stowage.yaml",
                                "--out a --trace a",
                                "--out a --trace ./a"}) {
        const CommandResult result = stowage("execute " + kOwn + " " + options);
        EXPECT_EQ(result.code, 2) << options;
        EXPECT_EQ(result.out, "") << options;
        EXPECT_NE(result.error, "") << options;
    }
}

TEST_F(Execute, RefusesLayersThatAreNotItsOwn) {
    const CommandResult scenario = stowage("execute " + kSmall);
    EXPECT_EQ(scenario.code, 3);
    EXPECT_EQ(
        scenario.error,
        kSmall +
            ":2:1: error: implementation: found megatron, whose layers do not run here: what is executed are "
            "stowage's own\n"
            "  schema: stowage/scenario/1\n"
            "  ^\n"
            "hint: set implementation: stowage; a measurement is held against a prediction of the same "
            "implementation only. 'stowage execute --stand-ins' runs work of the same class, length and traffic in "
            "their place\n");
    stowage("plan --quiet " + kSmall + " --device-memory 3.2GiB --out " + path("p.json"));
    const CommandResult plan = stowage("execute " + path("p.json"));
    EXPECT_EQ(plan.code, 3);
    EXPECT_EQ(plan.error.find(path("p.json") + ": error: scenario.implementation: found megatron"), 0U) << plan.error;
    EXPECT_EQ(stowage("execute no-such-file.yaml").code, 3);
}

TEST_F(Execute, RefusesWhatMegatronRefuses) {
    const std::string scenario = with("activation_offload_fraction: 1", "activation_offload_fraction: 1.5");
    const CommandResult result = stowage("execute " + scenario);
    EXPECT_EQ(result.code, 4);
    EXPECT_EQ(result.error.find("stowage: error: Megatron refuses this policy: "), 0U) << result.error;
}

TEST_F(Execute, TellsErrorsOfTheLibraryAsItsOwn) {
    const auto expect = [&](const char* kind, int code, const std::string& message) {
        const Variable error("STOWAGE_FAKE_ERROR", kind);
        const CommandResult result = stowage("execute " + kOwn + " --out " + path("m.json") + " --trace " + path("t"));
        EXPECT_EQ(result.code, code) << kind;
        EXPECT_EQ(result.out, "") << kind;
        EXPECT_EQ(result.error, "stowage: warming up\n" + message) << kind;
        EXPECT_EQ(folder_.listing(), "") << "nothing is half written after " << kind;
    };
    expect("device", 5, "stowage: error: there is no device here\n");
    expect("memory", 5,
           "stowage: error: out of device memory: 3 bytes asked for, 1 are in use and 2 reserved\n"
           "hint: offload more, recompute, or choose smaller microbatches; 'stowage simulate' says what the step "
           "needs\n");
    expect("unsupported", 3, "stowage: error: this version cannot execute that\n");
    expect("input", 3, "table.json: error: cannot be read\n");
    expect("bug", 1, "stowage: error: a bug of stowage, please report it: something that cannot be\n");
}

TEST_F(Execute, SaysWhyTheLibraryCannotBeUsed) {
    const auto refusal = [&](const std::string& library) {
        const Variable other("STOWAGE_GPU_LIBRARY", library);
        const CommandResult result = stowage("execute " + kOwn);
        EXPECT_EQ(result.code, 5) << library;
        setenv("STOWAGE_GPU_LIBRARY", STOWAGE_FAKE_GPU, 1);
        return result.error;
    };
    EXPECT_EQ(refusal("/no/such.so"), "stowage: error: execute: STOWAGE_GPU_LIBRARY names no file: /no/such.so\n");
    support::write_text(folder_ / "text.so", "no library\n");
    const std::string no_library = refusal(path("text.so"));
    EXPECT_EQ(no_library.find("stowage: error: execute: " + path("text.so") + " cannot be opened: "), 0U) << no_library;
    EXPECT_NE(no_library.find("\nhint: it needs the driver, and where the loader finds them cuBLASLt"),
              std::string::npos)
        << no_library;
    EXPECT_EQ(refusal(STOWAGE_OLD_GPU), "stowage: error: execute: " STOWAGE_OLD_GPU
                                        " speaks version 0 of what the command asks of it, expected " +
                                            std::to_string(kGpuVerbsVersion) + "\nhint: build both anew\n");
}

// Beside the command, where a build puts it, or in the library folder of an installation.
TEST_F(Execute, FindsTheLibraryBesideTheCommandAndInAnInstallation) {
    const Variable nothing("STOWAGE_GPU_LIBRARY", "");
    namespace fs = std::filesystem;
    const auto code = [&](const std::string& command) {
        const std::string line = "cd '" STOWAGE_SOURCE_DIR "' && " + command + " execute --quiet " + kOwn;
        const int status = std::system((line + " >" + path("said") + " 2>&1").c_str());
        return WEXITSTATUS(status);
    };
    for (const char* folder : {"bin", STOWAGE_LIBRARY_PLACE}) fs::create_directories(folder_ / folder);
    fs::copy_file(STOWAGE_COMMAND, folder_ / "bin/stowage");
    EXPECT_EQ(code(path("bin/stowage")), 5);
    const std::string said = file_text(folder_ / "said");
    EXPECT_TRUE(said.find("there is no libstowage_gpu.so; looked for " + path("bin/libstowage_gpu.so")) !=
                    std::string::npos ||
                said.find("built without CUDA; use the cuda preset") != std::string::npos)
        << said;
    const fs::path installed = folder_ / STOWAGE_LIBRARY_PLACE / "libstowage_gpu.so";
    fs::copy_file(STOWAGE_FAKE_GPU, installed);
    EXPECT_EQ(code(path("bin/stowage")), 0) << file_text(folder_ / "said");
    fs::remove(installed);
    fs::copy_file(STOWAGE_FAKE_GPU, folder_ / "bin/libstowage_gpu.so");
    EXPECT_EQ(code(path("bin/stowage")), 0) << file_text(folder_ / "said");
    fs::create_symlink(folder_ / "bin/stowage", folder_ / "link");
    EXPECT_EQ(code(path("link")), 0) << file_text(folder_ / "said");
}

TEST_F(Execute, ChecksThatItCanWriteBeforeItRuns) {
    const Variable request("STOWAGE_FAKE_REQUEST", path("asked"));
    EXPECT_EQ(stowage("execute " + kOwn + " --out " + path("no/m.json")).code, 3);
    EXPECT_EQ(stowage("execute " + kOwn + " --trace " + path("no/t.json")).code, 3);
    EXPECT_EQ(folder_.listing(), "");
    EXPECT_EQ(stowage("execute " + kOwn + " --gemm-table " + path("no/g.json")).error,
              path("no/g.json") + ": error: cannot be written\nhint: there is no folder '" + path("no") +
                  "'; make it first\n");
    EXPECT_EQ(stowage("execute " + kOwn + " --dump " STOWAGE_FAKE_GPU).error,
              STOWAGE_FAKE_GPU ": error: is a file, expected a folder for --dump\n");
    EXPECT_EQ(folder_.listing(), "");
}

// The numbers of a choice are counted with: what overflows is refused where it is read. The model has eight layers.
TEST_F(Execute, RefusesAChoiceThatNoPlanHolds) {
    ASSERT_EQ(stowage("plan --quiet " + kOwn + " --out " + path("p.json")).code, 0);
    json plan = json::parse(file_text(folder_ / "p.json"));
    const json free = json::parse(R"({"by_layer": [["core_attn"], []], "reload_ahead": 2, "join_after": 0})");
    const auto error = [&](const char* path_of_value, const char* value) {
        json changed = plan;
        changed["choice"]["free"] = free;
        changed["choice"][json::json_pointer(path_of_value)] = json::parse(value);
        support::write_text(folder_ / "e.json", changed.dump());
        for (const char* verb : {"simulate", "execute"})
            EXPECT_EQ(stowage(std::string(verb) + " --quiet " + path("e.json")).code, 3) << path_of_value << value;
        return stowage("simulate " + path("e.json")).error;
    };
    const std::string begin = path("e.json") + ": error: not as stowage writes it: ";
    EXPECT_EQ(
        error("/free/reload_ahead", "9223372036854775807"),
        begin + "choice.free.reload_ahead: found 9223372036854775807, expected a whole number from 1 to 1000000\n");
    EXPECT_EQ(error("/free/join_after", "-1"),
              begin + "choice.free.join_after: found -1, expected a whole number from 0 to 1000000\n");
    EXPECT_EQ(error("/free/join_after", "1.5"),
              begin + "choice.free.join_after: found 1.5, expected a whole number from 0 to 1000000\n");
    EXPECT_EQ(error("/free/by_layer", R"({"0": ["core_attn"]})").find(begin + "choice.free.by_layer: expected a list"),
              0U);
    EXPECT_EQ(error("/free/by_layer/0", "null"), begin + "expected lists of modules, found null\n");
    EXPECT_EQ(error("/free/by_layer/0/0", "\"mlp\""), begin + "there is no module \"mlp\" to offload\n");
    json many = json::array();
    for (int layer = 0; layer < 100; ++layer) many.push_back(json::array());
    EXPECT_EQ(
        error("/free/by_layer", many.dump().c_str()).find(begin + "choice.free.by_layer: expected a list of at most"),
        0U);
    for (const char* number : {"/min_offloaded_tensor_size", "/delta_offload_bytes_across_pp_ranks",
                               "/fine_grained_offloading_max_inflight_offloads"})
        EXPECT_EQ(error(number, "18446744073709551615")
                      .find(begin + "choice." + (number + 1) + ": found 18446744073709551615"),
                  0U);
}

TEST_F(Execute, OfTheSameRunWritesTheSameBytes) {
    for (const char* name : {"one", "two"})
        EXPECT_EQ(
            stowage("execute --quiet " + kOwn + " --out " + path(name) + ".json --trace " + path(name) + ".trace").code,
            0);
    EXPECT_NE(file_text(folder_ / "one.json"), "");
    EXPECT_EQ(file_text(folder_ / "one.json"), file_text(folder_ / "two.json"));
    EXPECT_EQ(file_text(folder_ / "one.trace"), file_text(folder_ / "two.trace"));
}

// The fake runs a microsecond for each operation, so that the simulated step's trace and the measured one have the same
// names as often.
TEST_F(Execute, TracesTheOperationsOfTheSimulation) {
    const auto names = [&](const std::string& verb) {
        EXPECT_EQ(stowage(verb + " --quiet " + kOwn + " --trace " + path("t")).code, 0);
        const json trace = json::parse(file_text(folder_ / "t"));
        EXPECT_EQ(reports::trace_problems(trace), std::vector<std::string>{});
        std::map<std::string, int> count;
        for (const json& event : trace.at("traceEvents")) {
            const std::string category = event.value("cat", "");
            if (event.at("pid") == 0 && event.at("ph") == "X" && (category == "compute" || category == "copy"))
                ++count[category + " " + event.at("name").get<std::string>() + event.at("args").dump()];
        }
        return count;
    };
    const auto measured = names("execute");
    EXPECT_GT(measured.size(), 10U);
    EXPECT_EQ(measured, names("simulate"));
}

TEST_F(Execute, RunsAPlanOfItsOwnLayers) {
    const std::string scenario = with("offload_modules: [core_attn], activation_offload_fraction: 1",
                                      "offload_modules: auto, activation_offload_fraction: auto");
    // A byte less than the step takes with nothing offloaded: the plan has to move something.
    const json nothing = json::parse(stowage("simulate --json --quiet " + scenario).out);
    const std::int64_t limit = nothing.at("predicted").at("peak_device_bytes").get<std::int64_t>() - 1;
    const std::string memory = " --device-memory " + std::to_string(limit);
    ASSERT_EQ(stowage("plan --quiet " + scenario + memory + " --out " + path("p.json")).code, 0);
    const json choice = json::parse(file_text(folder_ / "p.json")).at("choice");
    const json measurement = json::parse(stowage("execute --json --quiet " + path("p.json")).out);
    EXPECT_FALSE(choice.at("offload_modules").empty());
    EXPECT_EQ(measurement.at("choice"), choice);
    EXPECT_EQ(measurement.at("scenario_name"), "s");
}

TEST_F(Execute, IsReportedBesideItsPlan) {
    const std::string scenario = with("offload_modules: [core_attn], activation_offload_fraction: 1",
                                      "offload_modules: auto, activation_offload_fraction: auto");
    const std::string plan = path("p.json");
    ASSERT_EQ(stowage("plan --quiet " + scenario + " --out " + plan).code, 0);
    for (const char* policy : {"none", "megatron"})
        EXPECT_EQ(stowage("execute --quiet " + plan + " --policy " + policy + " --out " + path(policy)).code, 0);
    const std::string both = plan + " " + path("none") + " " + path("megatron");
    const CommandResult text = stowage("report " + both);
    EXPECT_EQ(text.code, 0) << text.error;
    EXPECT_EQ(text.out.find(stowage("report " + plan).out + "\nMeasured, each beside the prediction"), 0U) << text.out;
    const CommandResult csv = stowage("report --format csv " + both);
    EXPECT_EQ(std::count(csv.out.begin(), csv.out.end(), '\n'), 1 + 2 * 4) << csv.out;
    const json document = json::parse(stowage("report --json " + both).out);
    EXPECT_EQ(document.at("plan"), json::parse(file_text(plan)));
    EXPECT_EQ(document.at("measurements")[1], json::parse(file_text(folder_ / "megatron")));
    EXPECT_EQ(stowage("report --format megatron-table " + both).code, 2);
    EXPECT_EQ(stowage("report " + both + " --out " + path("none")).code, 2);
    EXPECT_EQ(stowage("report " + plan + " " + plan).error,
              plan +
                  ": error: schema: found stowage/plan/1, expected stowage/measurement/1\n"
                  "hint: 'stowage execute' writes such files\n");
}

TEST_F(Execute, ShowsPredictedBesideMeasured) {
    const CommandResult result = stowage("execute " + kOwn);
    EXPECT_EQ(result.code, 0) << result.error;
    for (const char* part :
         {"small_stowage: pipeline rank 0 executed, policy megatron, caching allocator\n", "a fake GPU, 132 ", "250.01",
          "reserved peak, GiB", "to the host", "attention",
          "fedcba9876543210 over losses and gradients of 1 step; the last loss 8.5\n",
          "timed: 1755 MHz 690 W 66 C, held back by power cap", "1.00 ms to launch a step, 0.4 % of it"})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

}  // namespace
}  // namespace stowage::cli
