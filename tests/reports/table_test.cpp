#include "reports/table.hpp"

#include <gtest/gtest.h>

#include "reports/json.hpp"
#include "reports/megatron_flags.hpp"
#include "reports/outcome_json.hpp"
#include "reports/units.hpp"

namespace stowage::reports {
namespace {

TEST(Table, AlignsNumbersRightAndWordsLeft) {
    Table table({{"rank"}, {"GiB"}, {"modules", Table::Align::left}});
    table.add({"0", "71.25", "core_attn"});
    table.add({"10", "8.00", ""});
    EXPECT_EQ(table.text(),
              "  rank    GiB  modules\n"
              "     0  71.25  core_attn\n"
              "    10   8.00\n");
}

TEST(Table, BreaksALastColumnOfWordsAtAHundredColumns) {
    Table table({{"policy", Table::Align::left}, {"modules", Table::Align::left}});
    std::string words = "word0";
    for (int i = 1; i < 20; ++i) words += " word" + std::to_string(i);
    table.add({"all", words});
    std::size_t begin = 0;
    for (const std::string text = table.text(); begin < text.size();) {
        const std::size_t end = text.find('\n', begin);
        EXPECT_LE(end - begin, 100U);
        begin = end + 1;
    }
    EXPECT_NE(table.text().find("\n          word"), std::string::npos) << table.text();
}

TEST(Wrapped, BreaksAtSpacesAndIndentsWhatFollows) {
    EXPECT_EQ(wrapped("aa bb cc", 2, 7), "aa bb\n  cc");
    EXPECT_EQ(wrapped("a-word-that-is-longer", 2, 7), "a-word-that-is-longer");
    EXPECT_EQ(wrapped("", 2, 7), "");
}

TEST(Units, AreRoundedForPeople) {
    EXPECT_EQ(gib(std::int64_t{71} << 30), "71.00");
    EXPECT_EQ(gib(-(std::int64_t{1} << 29)), "-0.50");
    EXPECT_EQ(short_gib(std::int64_t{1536} << 30), "1536");
    EXPECT_EQ(short_gib((std::int64_t{3} << 30) / 2), "1.5");
    EXPECT_EQ(milliseconds(3120423.7), "3120.42");
    EXPECT_EQ(percent(0.0123), "1.2 %");
    EXPECT_EQ(grouped(30532122624), "30,532,122,624");
    EXPECT_EQ(grouped(999), "999");
    EXPECT_EQ(grouped(-1000), "-1,000");
}

TEST(JsonText, PutsOnOneLineWhatFitsOne) {
    const Json document{{"shape", {4096, 2}}, {"empty", Json::array()}, {"inside", {{"a", {{"b", 1.5}}}}}};
    EXPECT_EQ(to_text(document),
              "{\n"
              "  \"shape\": [4096, 2],\n"
              "  \"empty\": [],\n"
              "  \"inside\": {\n"
              "    \"a\": {\"b\": 1.5}\n"
              "  }\n"
              "}\n");
}

TEST(JsonText, ReadsBackAsTheSameDocument) {
    Json document{{"quote\"d", "line\nend"}, {"list", Json::array()}};
    for (int i = 0; i < 100; ++i) document["list"].push_back({{"number", i}, {"nothing", nullptr}});
    EXPECT_EQ(Json::parse(to_text(document)), document);
}

TEST(StopReason, NamesTheHazardThatStopsMegatron) {
    search::Outcome outcome;
    EXPECT_EQ(stop_reason(outcome), "");
    outcome.released_static = true;
    EXPECT_FALSE(outcome.runs());
    EXPECT_NE(stop_reason(outcome).find("a graph's own memory (H4)"), std::string::npos);
    outcome.chunk_mismatch = true;
    EXPECT_NE(stop_reason(outcome).find("(H3)"), std::string::npos);
}

TEST(MegatronFlags, LeaveOutWhatIsMegatronsDefault) {
    const MegatronFlags flags =
        megatron_flags({.modules = {types::Module::moe_act, types::Module::core_attn}, .fraction = 0.8});
    EXPECT_EQ(flags.arguments,
              (std::vector<std::string>{"--fine-grained-activation-offloading", "--offload-modules core_attn moe_act",
                                        "--activation-offload-fraction 0.8"}));
    EXPECT_EQ(flags.environment, (std::map<std::string, std::string>{{"NVTE_CPU_OFFLOAD_V1", "1"}}));
}

TEST(MegatronFlags, NameWhatDiffersFromTheDefault) {
    const MegatronFlags flags = megatron_flags({.modules = {types::Module::core_attn},
                                                .fraction = 1,
                                                .min_offloaded_tensor_size = 4096,
                                                .delta_bytes_across_pp_ranks = 1048576});
    ASSERT_EQ(flags.arguments.size(), 5U);
    EXPECT_EQ(flags.arguments[2], "--activation-offload-fraction 1");
    EXPECT_EQ(flags.arguments[3], "--min-offloaded-tensor-size 4096");
    EXPECT_EQ(flags.arguments[4], "--delta-offload-bytes-across-pp-ranks 1048576");
}

TEST(MegatronFlags, NameGraphsAndWhatTheAllocatorIsToldAlsoWhenNothingMoves) {
    types::Scenario scenario;
    scenario.env = {{"NVTE_CPU_OFFLOAD_V1", "1"}, {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}};
    EXPECT_TRUE(megatron_flags(scenario, {}).arguments.empty());
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::transformer_engine;
    scenario.cuda_graph.cuda_graph_modules = {types::CudaGraphModule::attn, types::CudaGraphModule::moe_router};
    const MegatronFlags flags = megatron_flags(scenario, {});
    EXPECT_EQ(flags.arguments, (std::vector<std::string>{"--cuda-graph-impl transformer_engine",
                                                         "--cuda-graph-modules attn moe_router"}));
    EXPECT_EQ(flags.environment,
              (std::map<std::string, std::string>{{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}}));
    // The argument's name when pull request 3219 was merged.
    scenario.rules = types::RuleSet::pr_3219;
    EXPECT_EQ(megatron_flags(scenario, {}).arguments[1], "--cuda-graph-scope attn moe_router");
}

TEST(MegatronFlags, NameDelayAndCapBesideTheGraphs) {
    types::Scenario scenario;
    scenario.cuda_graph.cuda_graph_impl = types::CudaGraphImpl::full_iteration;
    scenario.cuda_graph.cuda_graph_warmup_steps = 2;
    const MegatronFlags flags = megatron_flags(
        scenario, {.modules = {types::Module::moe_act}, .max_inflight_offloads = 1, .delay_until_cuda_graph = true});
    EXPECT_EQ(
        flags.arguments,
        (std::vector<std::string>{
            "--fine-grained-activation-offloading", "--offload-modules moe_act", "--activation-offload-fraction 1",
            "--fine-grained-offloading-max-inflight-offloads 1", "--delay-offload-until-cuda-graph",
            "--cuda-graph-impl full_iteration", "--cuda-graph-warmup-steps 2", "--no-check-for-nan-in-loss-and-grad"}));
}

TEST(MegatronFlags, AreNoneWhenNothingMoves) {
    const MegatronFlags flags = megatron_flags({});
    EXPECT_TRUE(flags.arguments.empty());
    EXPECT_TRUE(flags.environment.empty());
}

}  // namespace
}  // namespace stowage::reports
