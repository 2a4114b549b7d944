// What the command says of scenarios with CUDA graphs: those of docs/graphs.md, one a scope.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/command.hpp"
#include "tests/reports/trace_rules.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::TemporaryFolder;

class OfAScope : public ::testing::TestWithParam<const char*> {
protected:
    struct Answer {
        json simulation;
        json trace;
    };

    static Answer simulated() {
        const TemporaryFolder folder;
        const std::string trace = (folder / "trace.json").string();
        const CommandResult result =
            stowage(std::string("simulate docs/graphs/") + GetParam() + ".yaml --json --trace " + trace);
        EXPECT_EQ(result.code, 0) << result.error;
        return {json::parse(result.out), json::parse(support::file_text(trace))};
    }

    static std::int64_t count(const json& trace, const auto& condition) {
        const json& events = trace.at("traceEvents");
        return std::count_if(events.begin(), events.end(), condition);
    }
};

TEST_P(OfAScope, TheTraceKeepsTheViewersRulesAndShowsEveryLaunch) {
    const auto [simulation, trace] = simulated();
    EXPECT_EQ(reports::trace_problems(trace), std::vector<std::string>{});
    const json& rank = simulation.at("ranks")[0];
    const std::int64_t launches = rank.contains("graphs") ? rank["graphs"]["launches_per_step"].get<std::int64_t>() : 0;
    EXPECT_EQ(count(trace, [](const json& event) { return event.value("cat", "") == "graph" && event["ph"] == "X"; }),
              launches);
}

TEST_P(OfAScope, AnArrowLeadsFromEveryGroupThatLeavesToItsReload) {
    const auto [simulation, trace] = simulated();
    std::int64_t groups = 0;
    for (const json& moved : simulation.at("ranks")[0].at("offloaded_groups")) groups += moved.get<std::int64_t>();
    EXPECT_EQ(count(trace, [](const json& event) { return event["ph"] == "s"; }), groups);
}

TEST_P(OfAScope, HeadRoomIsWhatReservedMemoryAndGraphsLeave) {
    const auto [simulation, trace] = simulated();
    const json& rank = simulation.at("ranks")[0];
    if (!rank.contains("graphs")) {
        EXPECT_EQ(rank["peak_device_bytes"], rank["peak_reserved_bytes"]);
        return;
    }
    const std::int64_t graphs = rank["graphs"]["executable_bytes"];
    EXPECT_GT(graphs, 0);
    std::int64_t peak = std::max(rank["first_iteration"]["peak_reserved_bytes"].get<std::int64_t>(),
                                 rank["eager_iterations"]["peak_reserved_bytes"].get<std::int64_t>());
    for (const char* stage : {"capture", "later_iterations"})
        peak = std::max(peak, rank[stage]["peak_reserved_bytes"].get<std::int64_t>() + graphs);
    EXPECT_EQ(rank["peak_device_bytes"], peak);
}

INSTANTIATE_TEST_SUITE_P(Graphs, OfAScope,
                         ::testing::Values("eager", "attn", "router", "preprocess", "delayed", "layer", "halves",
                                           "iteration"),
                         [](const auto& scope) { return std::string(scope.param); });

TEST(ExportedFlags, NameTheGraphsAndTheDelay) {
    const TemporaryFolder folder;
    const std::string plan = (folder / "plan.json").string();
    ASSERT_EQ(stowage("plan docs/graphs/delayed.yaml --quiet --out " + plan).code, 0);
    const CommandResult flags = stowage("export megatron-flags " + plan);
    EXPECT_EQ(flags.code, 0);
    EXPECT_EQ(flags.out,
              "--fine-grained-activation-offloading\n--offload-modules qkv_linear moe_act\n"
              "--activation-offload-fraction 1\n--delay-offload-until-cuda-graph\n"
              "--cuda-graph-impl transformer_engine\n--cuda-graph-modules attn moe_router moe_preprocess\n");
}

TEST(ReportAsCsv, HasTheStagesAndTheGraphsOfARank) {
    const TemporaryFolder folder;
    const std::string plan = (folder / "plan.json").string();
    ASSERT_EQ(stowage("plan docs/graphs/delayed.yaml --quiet --out " + plan).code, 0);
    const std::string csv = stowage("report --format csv " + plan).out;
    const auto cells = [&](std::size_t line) {
        std::istringstream lines(csv);
        std::string text;
        for (std::size_t i = 0; i <= line; ++i) std::getline(lines, text);
        std::istringstream stream(text.substr(0, text.find('\r')));
        std::vector<std::string> list;
        for (std::string cell; std::getline(stream, cell, ',');) list.push_back(cell);
        return list;
    };
    const std::vector<std::string> names = cells(0);
    const std::vector<std::string> values = cells(1);
    ASSERT_EQ(names.size(), values.size());
    const json rank = json::parse(support::file_text(plan)).at("ranks")[0];
    const auto value = [&](const std::string& name) {
        const auto found = std::find(names.begin(), names.end(), name);
        return found == names.end() ? "no " + name : values[static_cast<std::size_t>(found - names.begin())];
    };
    EXPECT_EQ(value("peak_device_bytes"), rank["peak_device_bytes"].dump());
    EXPECT_EQ(value("capture_peak_reserved_bytes"), rank["capture"]["peak_reserved_bytes"].dump());
    EXPECT_EQ(value("eager_iterations_peak_allocated_bytes"), rank["eager_iterations"]["peak_allocated_bytes"].dump());
    EXPECT_EQ(value("graphs_captured"), "8");
    EXPECT_EQ(value("graphs_executable_bytes"), rank["graphs"]["executable_bytes"].dump());
}

TEST(Simulate, SaysWhatBecomesOfAPolicyOnADeviceThatIsTooSmall) {
    const TemporaryFolder folder;
    const auto answer = [&](const std::string& memory) {
        std::string text = support::file_text(STOWAGE_SOURCE_DIR "/tests/data/small_graphs.yaml");
        const std::string offload = "offload: {offload_modules: auto, activation_offload_fraction: auto}";
        text.replace(text.find(offload), offload.size(), "limits: {device_memory: " + memory + "}");
        support::write_text(folder / "small.yaml", text);
        return json::parse(stowage("simulate --json " + (folder / "small.yaml").string()).out);
    };
    EXPECT_FALSE(answer("39 GiB").contains("at_device_limit"));
    const json full = answer("1 GiB").at("at_device_limit");
    EXPECT_EQ(full.at("runs"), false);
    const json& shortage = full.at("shortage");
    EXPECT_LT(shortage.at("largest_free_block_bytes"), shortage.at("request_bytes"));
    EXPECT_GT(shortage.at("reserved_bytes").get<std::int64_t>() + shortage.at("must_grow_by_bytes").get<std::int64_t>(),
              shortage.at("limit_bytes").get<std::int64_t>());
    EXPECT_NE(shortage.at("explanation"), "");
}

}  // namespace
}  // namespace stowage::cli
