#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/cli/command.hpp"
#include "tests/reports/trace_rules.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::file_text;
using support::TemporaryFolder;

// 3.2 GiB is less than the small scenario takes without offloading, and more than it takes with.
const std::string kTight = kSmall + " --device-memory 3.2GiB";

TEST(Command, SaysItsVersionAndHelpsEveryVerb) {
    EXPECT_EQ(stowage("--version").out.substr(0, 8), "stowage ");
    for (const char* verb :
         {"plan", "simulate", "check", "explain", "import", "report", "validate", "export", "execute", "schema"}) {
        const CommandResult help = stowage(std::string(verb) + " --help");
        EXPECT_EQ(help.code, 0) << verb;
        EXPECT_NE(help.out.find("Example:\n  "), std::string::npos) << verb;
        EXPECT_NE(help.out.find("--json"), std::string::npos) << verb;
        EXPECT_NE(help.out.find("--quiet"), std::string::npos) << verb;
    }
    const std::string help = stowage("--help").out;
    for (const char* verb : {"plan", "simulate", "check", "explain", "import", "export", "calibrate", "profile",
                             "execute", "report", "validate", "schema"})
        EXPECT_NE(help.find(std::string("\n  ") + verb + " "), std::string::npos) << verb;
}

TEST(Command, ExitsWithTwoOnAWrongCommandLine) {
    for (const char* line : {"", "plam x.yaml", "plan", "plan a.yaml --no-such-option", "plan a.yaml --time-limit soon",
                             "report p.json --format pdf", "export something p.json", "schema machine"}) {
        const CommandResult result = stowage(line);
        EXPECT_EQ(result.code, 2) << line;
        EXPECT_EQ(result.out, "") << line;
        EXPECT_NE(result.error, "") << line;
    }
}

TEST(Command, KnowsTheNearestVerb) {
    const CommandResult result = stowage("plam scenario.yaml");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.error, "stowage: error: there is no verb 'plam'\nhint: did you mean 'plan'?\n");
}

TEST(Command, RefusesByNameWhatIsNotInThisVersion) {
    const auto expect_refusal = [](const std::string& line, const std::string& beginning) {
        const CommandResult result = stowage(line);
        EXPECT_EQ(result.code, 2) << line;
        EXPECT_EQ(result.error.substr(0, beginning.size()), beginning) << line;
    };
    expect_refusal("plan " + kSmall + " --space free", "stowage: error: --space free is not in this version: ");
    expect_refusal("plan " + kSmall + " --front 5", "stowage: error: --front is not in this version: ");
    expect_refusal("plan " + kSmall + " --max-slowdown 1", "stowage: error: --max-slowdown is not in this version: ");
    expect_refusal("plan " + kSmall + " --allow-hazard H3", "stowage: error: --allow-hazard is not in this version: ");
    expect_refusal("report p.json --format html", "stowage: error: --format html is not in this version");
}

TEST(Command, ShowsTheReadersErrorsAsTheyAre) {
    const TemporaryFolder folder;
    const std::string path = (folder / "bad.yaml").string();
    support::write_text(path, "schema: stowage/scenario/1\nmodle: x\n");
    const CommandResult result = stowage("plan " + path);
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.error.substr(0, path.size() + 5), path + ":1:1:") << result.error;
    EXPECT_EQ(stowage("plan no-such-file.yaml").code, 3);
    EXPECT_EQ(stowage("check no-such-file.yaml").code, 3);
    EXPECT_EQ(stowage("simulate no-such-file.yaml").code, 3);
    EXPECT_EQ(stowage("report no-such-file.json").error, "no-such-file.json: error: No such file or directory\n");
}

TEST(Command, PlansNoOtherObjectiveThanTheStepTimeButSimulatesThem) {
    const TemporaryFolder folder;
    const std::string path = (folder / "memory.yaml").string();
    std::string text = support::file_text(STOWAGE_SOURCE_DIR "/tests/data/small_graphs.yaml");
    support::write_text(path, text + "objective: memory\n");
    const std::string line = std::to_string(std::count(text.begin(), text.end(), '\n') + 1);
    const CommandResult planned = stowage("plan " + path);
    EXPECT_EQ(planned.code, 3);
    EXPECT_EQ(planned.error, path + ":" + line +
                                 ":12: error: objective: this version cannot plan objective: memory\n"
                                 "  objective: memory\n"
                                 "             ^\n"
                                 "hint: use objective: step_time\n");
    EXPECT_EQ(stowage("simulate " + path).code, 0);
}

TEST(Command, PointsAtEverythingThatItCannotPlanYet) {
    const TemporaryFolder folder;
    const std::string path = (folder / "later.yaml").string();
    std::ifstream small(std::string(STOWAGE_SOURCE_DIR) + "/" + kSmall);
    std::string text{std::istreambuf_iterator<char>(small), {}};
    const std::string precision = "precision: bf16";
    text.replace(text.find(precision), precision.size(), "precision: fp32");
    const std::string adam = "{optimizer: adam}";
    text.replace(text.find(adam), adam.size(), "{optimizer: muon}");
    support::write_text(path, text);
    for (const std::string verb : {"plan ", "simulate "}) {
        const CommandResult result = stowage(verb + path);
        EXPECT_EQ(result.code, 3);
        EXPECT_EQ(result.error, path +
                                    ":14:12: error: precision: this version cannot plan precision: fp32\n"
                                    "  precision: fp32\n"
                                    "             ^\n"
                                    "hint: use bf16, fp16 or an FP8 recipe\n" +
                                    path +
                                    ":15:24: error: optimizer.optimizer: this version cannot plan optimizer: muon\n"
                                    "  optimizer: {optimizer: muon}\n"
                                    "                         ^\n"
                                    "hint: use adam\n");
    }
}

TEST(Command, SaysWhatIsWrongWithASize) {
    const CommandResult result = stowage("plan " + kSmall + " --device-memory lots");
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.error,
              "stowage: error: --device-memory: found 'lots', expected a size such as 80 GiB, from 1 B to 1024 TiB\n"
              "hint: units: B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB (powers of 1000)\n");
}

TEST(Plan, GivesTheFieldsThatScriptsRead) {
    const CommandResult result = stowage("plan --json " + kTight);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.error, "");
    const json plan = json::parse(result.out);
    EXPECT_EQ(plan.at("schema"), "stowage/plan/1");
    EXPECT_EQ(plan.at("verdict"), "plan");
    EXPECT_GE(plan.at("choice").at("offload_modules").size(), 1U);
    EXPECT_TRUE(plan.at("choice").at("activation_offload_fraction").is_number());
    EXPECT_GE(plan.at("predicted").at("step_time_us").get<double>(),
              plan.at("predicted").at("lower_bound_us").get<double>());
    EXPECT_GE(plan.at("certificate").at("gap").get<double>(), 0);
    ASSERT_EQ(plan.at("ranks").size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
        const json& rank = plan.at("ranks")[i];
        EXPECT_EQ(rank.at("rank"), i);
        EXPECT_EQ(rank.at("pipeline_rank"), i);
        EXPECT_LE(rank.at("static_bytes").get<std::int64_t>(), rank.at("peak_allocated_bytes").get<std::int64_t>());
        EXPECT_LE(rank.at("peak_allocated_bytes").get<std::int64_t>(),
                  rank.at("peak_reserved_bytes").get<std::int64_t>());
        EXPECT_LE(rank.at("peak_reserved_bytes").get<std::int64_t>(), std::int64_t{3435973836});
        EXPECT_GT(rank.at("pinned_host_bytes").get<std::int64_t>(), 0);
        EXPECT_EQ(rank.at("offloaded_bytes").size(), plan.at("choice").at("offload_modules").size());
        EXPECT_GE(rank.at("exposed_copy_us").get<double>(), 0);
    }
}

TEST(Plan, AnswersNoWithFourWhenNothingFits) {
    const CommandResult result = stowage("plan --json " + kSmall + " --device-memory 2GiB");
    EXPECT_EQ(result.code, 4);
    const json plan = json::parse(result.out);
    EXPECT_EQ(plan.at("verdict"), "infeasible");
    EXPECT_TRUE(plan.at("choice").is_null());
    EXPECT_EQ(plan.at("ranks").size(), 0U);
    EXPECT_EQ(plan.at("smallest").at("ranks").size(), 4U);
    EXPECT_NE(plan.at("limited_by").get<std::string>(), "");
}

TEST(Plan, SaysThatNoChoiceIsLegalWhereNoneWasTried) {
    std::string scenario = support::file_text(STOWAGE_SOURCE_DIR "/tests/data/small.yaml");
    const std::string setting = "env: {NVTE_CPU_OFFLOAD_V1: 1}\n";  // rule O17: without it Megatron offloads nothing
    ASSERT_NE(scenario.find(setting), std::string::npos);
    scenario.replace(scenario.find(setting), setting.size(), "env: {CUDA_DEVICE_MAX_CONNECTIONS: 1}\n");
    const TemporaryFolder folder;
    const std::string path = (folder / "plain.yaml").string();
    support::write_text(path, scenario);
    const CommandResult result = stowage("plan " + path + " --device-memory 3.2GiB");
    EXPECT_EQ(result.code, 4);
    EXPECT_TRUE(
        result.out.starts_with("plain: infeasible, it does not fit as it is and the scenario leaves no legal choice\n"))
        << result.out;
    EXPECT_NE(result.out.find("nearest: Set NVTE_CPU_OFFLOAD_V1 to 1 in env."), std::string::npos) << result.out;
}

TEST(Plan, OfTheSameInputIsTheSameBytes) {
    const TemporaryFolder folder;
    for (const char* name : {"one", "two"})
        EXPECT_EQ(stowage("plan --quiet " + kTight + " --out " + (folder / name).string() + ".json --trace " +
                          (folder / name).string() + ".trace")
                      .code,
                  0);
    EXPECT_NE(file_text(folder / "one.json"), "");
    EXPECT_EQ(file_text(folder / "one.json"), file_text(folder / "two.json"));
    EXPECT_EQ(file_text(folder / "one.trace"), file_text(folder / "two.trace"));
    EXPECT_EQ(reports::trace_problems(json::parse(file_text(folder / "one.trace"))), std::vector<std::string>{});
}

TEST(Plan, WritesFilesAndSaysSoOnStandardError) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    const CommandResult result = stowage("plan --json " + kTight + " --out " + out);
    EXPECT_EQ(result.error, "stowage: wrote " + out + "\n");
    EXPECT_EQ(result.out, file_text(out));
    EXPECT_EQ(folder.listing(), "p.json\n");
    const CommandResult quiet = stowage("plan --quiet " + kTight + " --out " + out);
    EXPECT_EQ(quiet.out + quiet.error, "");
}

TEST(Plan, SaysAtOnceThatAPlaceCannotBeWritten) {
    const TemporaryFolder folder;
    const CommandResult result = stowage("plan " + kSmall + " --out " + (folder / "no/p.json").string());
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.error.find("make it first"), std::string::npos) << result.error;
    const std::string both = (folder / "p.json").string();
    EXPECT_EQ(stowage("plan " + kSmall + " --out " + both + " --trace " + both).code, 2);
    EXPECT_EQ(folder.listing(), "");
    EXPECT_EQ(stowage("schema >/dev/full 2>/dev/null; exit $?; true").code, 3);
}

TEST(Simulate, OfAPlanGivesThePlansNumbersAgain) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    stowage("plan --quiet " + kTight + " --out " + out);
    const CommandResult result = stowage("simulate --json " + out);
    EXPECT_EQ(result.code, 0) << result.error;
    const json plan = json::parse(file_text(out));
    const json simulation = json::parse(result.out);
    EXPECT_EQ(simulation.at("schema"), "stowage/simulation/1");
    EXPECT_EQ(simulation.at("ranks"), plan.at("ranks"));
    EXPECT_EQ(simulation.at("predicted").at("step_time_us"), plan.at("predicted").at("step_time_us"));
    EXPECT_EQ(simulation.at("scenario"), plan.at("scenario"));
    EXPECT_EQ(simulation.at("fits"), true);
}

TEST(Simulate, OffloadsNothingWhereAScenarioLeavesTheModulesToThePlanner) {
    const CommandResult result = stowage("simulate --json " + kSmall);
    EXPECT_EQ(result.error, "stowage: offload_modules: auto: nothing is offloaded here; 'stowage plan' chooses\n");
    const json simulation = json::parse(result.out);
    EXPECT_EQ(simulation.at("choice").at("offload_modules"), json::array());
    EXPECT_EQ(simulation.at("choice").at("activation_offload_fraction"), 1.0);
    for (const json& rank : simulation.at("ranks")) EXPECT_EQ(rank.at("pinned_host_bytes"), 0);
    EXPECT_EQ(stowage("simulate --json --quiet " + kSmall).error, "");
}

TEST(Simulate, OfAnInfeasiblePlanHasNothingToSimulate) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    stowage("plan --quiet " + kSmall + " --device-memory 2GiB --out " + out);
    const CommandResult result = stowage("simulate " + out);
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.error, out + ": error: the plan is infeasible and has no choice to simulate\n");
}

TEST(Report, ShowsAPlanFileAsThePlanWasShown) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    const CommandResult planned = stowage("plan " + kTight + " --out " + out);
    EXPECT_EQ(stowage("report " + out).out, planned.out);
    EXPECT_EQ(stowage("report --format json " + out).out, file_text(out));
    const std::string csv = stowage("report --format csv " + out).out;
    EXPECT_EQ(csv.substr(0, 47), "rank,pipeline_rank,layers,static_bytes,peak_all");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5) << csv;
    EXPECT_EQ(stowage("report --format csv " + out + " --out " + (folder / "r.csv").string()).out, "");
    EXPECT_EQ(file_text(folder / "r.csv"), csv);
}

// One table a pipeline rank under the rules of August 2026; the rows are those of its only rank, and add up.
TEST(Report, PrintsTheSummaryThatMegatronPrints) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    stowage("plan --quiet " + kTight + " --out " + out);
    const CommandResult table = stowage("report --format megatron-table " + out);
    EXPECT_EQ(table.code, 0) << table.error;
    const json plan = json::parse(file_text(out));
    for (const json& rank : plan.at("ranks")) {
        std::int64_t bytes = 0;
        for (const auto& [module, counted] : rank.at("megatron_summary_bytes").items())
            bytes += counted.get<std::int64_t>();
        ASSERT_GT(bytes, 0);
        const std::string beginning = "Pipeline rank " + rank.at("pipeline_rank").dump() + ", global ranks ";
        const std::size_t at = table.out.find(beginning);
        ASSERT_NE(at, std::string::npos) << table.out;
        const std::size_t row = table.out.find("\nRank 0 ", at) + 1;
        const std::string line = table.out.substr(row, table.out.find('\n', row) - row);
        std::array<char, 32> total{};
        std::snprintf(total.data(), total.size(), "%12.2f", static_cast<double>(bytes) / 1048576);
        EXPECT_EQ(line.substr(line.size() - 12), total.data()) << table.out;
    }
}

TEST(Report, RefusesWhatIsNoPlan) {
    const TemporaryFolder folder;
    const std::string path = (folder / "p.json").string();
    support::write_text(path, "{\"schema\": \"stowage/simulation/1\"}");
    EXPECT_EQ(stowage("report " + path).error,
              path +
                  ": error: schema: found stowage/simulation/1, expected stowage/plan/1\n"
                  "hint: 'stowage plan' writes such files\n");
    support::write_text(path, "{\"schema\": \"stowage/plan/1\"}");
    const CommandResult incomplete = stowage("report " + path);
    EXPECT_EQ(incomplete.code, 3);
    EXPECT_NE(incomplete.error.find("not as stowage writes it"), std::string::npos) << incomplete.error;
    support::write_text(path, "{\"schema\": ");
    EXPECT_EQ(stowage("report " + path).code, 3);
    EXPECT_EQ(stowage("export megatron-flags " + path).code, 3);
    EXPECT_EQ(stowage("simulate " + path).code, 3);
    EXPECT_EQ(stowage("report " + folder.path().string()).error,
              folder.path().string() + ": error: is a folder, expected a file\n");
}

TEST(Export, PrintsArgumentsThatAShellCanPaste) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    stowage("plan --quiet " + kTight + " --out " + out);
    const json plan = json::parse(file_text(out));
    const CommandResult result = stowage("export megatron-flags " + out);
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out.substr(0, 37), "--fine-grained-activation-offloading\n");
    EXPECT_NE(result.error.find("NVTE_CPU_OFFLOAD_V1=1"), std::string::npos);
    EXPECT_EQ(json::parse(stowage("export --json megatron-flags " + out).out), plan.at("megatron_flags"));
}

TEST(Export, AnswersNoForAnInfeasiblePlan) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    stowage("plan --quiet " + kSmall + " --device-memory 2GiB --out " + out);
    const CommandResult result = stowage("export megatron-flags " + out);
    EXPECT_EQ(result.code, 4);
    EXPECT_EQ(result.out, "");
}

/// The small scenario with other offload values.
std::string with_offload(const TemporaryFolder& folder, const std::string& values) {
    std::string text = file_text(STOWAGE_SOURCE_DIR "/" + kSmall);
    const std::string before = "{offload_modules: auto, activation_offload_fraction: auto}";
    text.replace(text.find(before), before.size(), values);
    support::write_text(folder / "s.yaml", text);
    return (folder / "s.yaml").string();
}

TEST(Check, GivesVerdictAndFindings) {
    const TemporaryFolder folder;
    const CommandResult legal = stowage("check --json " + with_offload(folder, "{offload_modules: [core_attn]}"));
    EXPECT_EQ(legal.code, 0) << legal.error;
    EXPECT_EQ(json::parse(legal.out).at("verdict"), "legal") << legal.out;
    const CommandResult illegal = stowage("check --json " + with_offload(folder, "{offload_modules: [attn_proj]}"));
    EXPECT_EQ(illegal.code, 4);
    const json check = json::parse(illegal.out);
    EXPECT_EQ(check.at("verdict"), "illegal");
    ASSERT_EQ(check.at("findings").size(), 1U) << illegal.out;
    EXPECT_EQ(check.at("findings")[0].at("severity"), "illegal");
    for (const char* key : {"rule", "message", "nearest_legal"})
        EXPECT_NE(check.at("findings")[0].at(key).get<std::string>(), "") << key;
}

TEST(Check, SaysWhichValuesItCouldNotJudge) {
    const json check = json::parse(stowage("check --json " + kSmall).out);
    EXPECT_EQ(check.at("left_to_the_planner"), json::parse(R"(["offload_modules", "activation_offload_fraction"])"));
}

TEST(Simulate, RunsAScenariosOwnValues) {
    const TemporaryFolder folder;
    const std::string scenario =
        with_offload(folder, "{offload_modules: [core_attn, qkv_linear], activation_offload_fraction: 0.5}");
    const json simulation = json::parse(stowage("simulate --json " + scenario).out);
    EXPECT_EQ(simulation.at("choice").at("offload_modules"), json::parse(R"(["qkv_linear", "core_attn"])"));
    EXPECT_EQ(simulation.at("choice").at("activation_offload_fraction"), 0.5);
}

// 268.01 ms a step, of which 267.56 are there without copies: tests/data/small_stowage.yaml moves little.
TEST(Simulate, HoldsOurOwnLayersAgainstTheirFloorAndNamesNoFlagOfMegatrons) {
    const std::string file = STOWAGE_SOURCE_DIR "/tests/data/small_stowage.yaml";
    const std::string shown = stowage("simulate " + file).out;
    EXPECT_EQ(shown.find("Megatron"), std::string::npos) << shown;
    EXPECT_NE(shown.find("\nFloor\n"), std::string::npos) << shown;
    const json simulation = json::parse(stowage("simulate --json " + file).out);
    const json& floor = simulation.at("floor");
    EXPECT_GT(floor.at("device_to_host_us"), 0);
    EXPECT_EQ(simulation.at("predicted").at("floor_us"), floor.at("schedule_us"));
    EXPECT_LT(simulation.at("predicted").at("floor_us"), simulation.at("predicted").at("step_time_us"));
}

TEST(Simulate, RefusesWhatMegatronRefuses) {
    const TemporaryFolder folder;
    for (const char* values : {"{offload_modules: [core_attn], activation_offload_fraction: 1.5}",
                               "{offload_modules: [core_attn], activation_offload_fraction: -0.5}",
                               "{offload_modules: [core_attn], min_offloaded_tensor_size: -1}",
                               "{offload_modules: [core_attn], delta_offload_bytes_across_pp_ranks: -1}",
                               "{offload_modules: [attn_proj]}"}) {
        const std::string scenario = with_offload(folder, values);
        const CommandResult result = stowage("simulate --json " + scenario);
        EXPECT_EQ(result.code, 4) << values;
        EXPECT_EQ(result.out, "") << values;
        EXPECT_EQ(result.error.find("stowage: error: Megatron refuses this policy: "), 0U) << result.error;
        EXPECT_NE(result.error.find("\nhint: "), std::string::npos) << result.error;
        EXPECT_EQ(stowage("check --quiet " + scenario).code, 4) << values;
        EXPECT_EQ(stowage("plan --quiet " + scenario).code, 4) << values;
    }
}

TEST(Simulate, OfSizesWithoutMeasureIsTheFilesFault) {
    const TemporaryFolder folder;
    const std::string path = with_offload(folder, "{offload_modules: []}");
    std::string text = file_text(path);
    text.replace(text.find("seq_length: 4096"), 16, "seq_length: 100000000");
    support::write_text(path, text);
    const CommandResult result = stowage("simulate " + path);
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.error.find("stowage: error: one operation would take more than an hour: "), 0U) << result.error;
}

TEST(Command, NeverReplacesWhatItReads) {
    const TemporaryFolder folder;
    const std::string scenario = with_offload(folder, "{offload_modules: [core_attn]}");
    const std::string text = file_text(scenario);
    const std::string other_name = folder.path().string() + "/./s.yaml";
    std::filesystem::create_symlink(scenario, folder / "link");
    for (const std::string& output : {scenario, other_name, (folder / "link").string(), std::string("''")}) {
        for (const char* verb : {"plan", "simulate"}) {
            for (const char* option : {" --out=", " --trace="}) {
                EXPECT_EQ(stowage(verb + (" " + scenario) + option + output).code, 2) << verb << option << output;
                EXPECT_EQ(file_text(scenario), text);
            }
        }
    }
    const std::string out = (folder / "a").string();
    EXPECT_EQ(stowage("plan " + scenario + " --out " + out + " --trace " + folder.path().string() + "/./a").code, 2);
    EXPECT_EQ(stowage("report " + scenario + " --out " + other_name).code, 2);
    EXPECT_EQ(folder.listing().find(".partial"), std::string::npos);
}

TEST(Command, KeepsItsFilesWholeWhenStandardStreamsAreClosed) {
    const TemporaryFolder folder;
    const std::string out = (folder / "p.json").string();
    const std::string trace = (folder / "t.json").string();
    EXPECT_EQ(stowage("plan " + kTight + " --out " + out + " --trace " + trace + " >&- 2>&- <&-; exit $?; true").code,
              3);
    EXPECT_EQ(json::parse(file_text(out)).at("verdict"), "plan");
    EXPECT_TRUE(json::parse(file_text(trace)).contains("traceEvents"));
}

TEST(Command, SaysWhatIsWrongWithATimeLimit) {
    for (const char* seconds : {"-1", "nan", "inf", "soon", "0x1"}) {
        const CommandResult result = stowage("plan " + kSmall + " --time-limit=" + seconds);
        EXPECT_EQ(result.code, 2) << seconds;
        EXPECT_EQ(result.error.find(std::string("stowage: error: --time-limit: found '") + seconds + "', expected "),
                  0U)
            << result.error;
    }
    EXPECT_EQ(stowage("plan --quiet " + kSmall + " --time-limit 1.5").code, 0);
}

TEST(Schema, IsJsonSchemaOfEachKind) {
    for (const char* kind : {"", "scenario", "model", "hardware"}) {
        const CommandResult result = stowage(std::string("schema ") + kind);
        EXPECT_EQ(result.code, 0);
        EXPECT_EQ(json::parse(result.out).at("$schema"), "https://json-schema.org/draft/2020-12/schema") << kind;
    }
}

}  // namespace
}  // namespace stowage::cli
