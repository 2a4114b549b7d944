#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/command.hpp"
#include "tests/support/temporary_folder.hpp"

namespace stowage::cli {
namespace {

using nlohmann::json;
using support::TemporaryFolder;
using support::write_text;

std::string recorded_table() { return std::string(STOWAGE_SOURCE_DIR) + "/tests/data/megatron_recorded_memory.yaml"; }

/// The twelve-layer model of Megatron-LM's functional tests on eight H100, with the distributed optimizer. Recorded:
/// 581,489,664 bytes between steps, which is the sum of its parts to the byte; see docs/memory.md.
std::string entry(const std::string& name, const std::string& more = {}) {
    return "- name: " + name +
           "\n"
           "  env: {CUBLAS_WORKSPACE_CONFIG: ':4096:8', NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0}\n"
           "  args:\n"
           "    num-layers: 12\n"
           "    hidden-size: 512\n"
           "    num-attention-heads: 8\n"
           "    micro-batch-size: 4\n"
           "    global-batch-size: 32\n"
           "    seq-length: 1024\n"
           "    max-position-embeddings: 1024\n"
           "    use-distributed-optimizer: true\n"
           "    deterministic-mode: true\n"
           "    no-gradient-accumulation-fusion: true\n"
           "    attention-backend: unfused\n"
           "    bf16: true\n" +
           more +
           "  recorded:\n"
           "    h100:\n"
           "      gpus: 8\n"
           "      mem_allocated_bytes: {first: 581489664.0, last: 581489664.0, max: 581489664.0}\n"
           "      mem_max_allocated_bytes: {first: 4605814272.0, last: 4702430720.0, max: 4702430720.0}\n";
}

json validate(const std::string& table) {
    const CommandResult result = stowage("validate --json --megatron-memory " + table);
    EXPECT_EQ(result.code, 0) << result.error;
    return json::parse(result.out);
}

TEST(Validate, HoldsAPredictionOfEachQuantityBesideWhatWasRecorded) {
    const TemporaryFolder folder;
    write_text(folder / "table.yaml", entry("small"));
    const json answer = validate((folder / "table.yaml").string());
    EXPECT_EQ(answer.at("schema"), "stowage/validation/1");
    EXPECT_TRUE(answer.at("refused").empty());
    ASSERT_EQ(answer.at("rows").size(), 2U);
    const json& between = answer.at("rows")[0];
    EXPECT_EQ(between.at("name"), "small");
    EXPECT_EQ(between.at("gpu"), "h100");
    EXPECT_EQ(between.at("gpus"), 8);
    EXPECT_EQ(between.at("quantity"), "allocated_bytes");
    EXPECT_EQ(between.at("measured"), 581'489'664);
    EXPECT_NEAR(between.at("error").get<double>(), 0, 0.001);
    const json& peak = answer.at("rows")[1];
    EXPECT_EQ(peak.at("quantity"), "peak_allocated_bytes");
    EXPECT_NEAR(peak.at("error").get<double>(), 0, 0.001);
    const double error = peak.at("predicted").get<double>() / 4'702'430'720.0 - 1;
    EXPECT_DOUBLE_EQ(peak.at("error").get<double>(), error);
    const json& summary = answer.at("summary").at("peak_allocated_bytes");
    EXPECT_EQ(summary.at("rows"), 1);
    EXPECT_DOUBLE_EQ(summary.at("median_abs_error").get<double>(), std::abs(error));
    EXPECT_DOUBLE_EQ(summary.at("max_abs_error").get<double>(), std::abs(error));
    EXPECT_EQ(summary.at("within_1_percent"), 1);
}

TEST(Validate, NamesWhatItRefusesAndTheMissingFeature) {
    const TemporaryFolder folder;
    write_text(folder / "table.yaml", entry("sharded", "    use-megatron-fsdp: true\n") + entry("plain"));
    const json answer = validate((folder / "table.yaml").string());
    ASSERT_EQ(answer.at("refused").size(), 1U);
    EXPECT_EQ(answer.at("refused")[0].at("name"), "sharded");
    EXPECT_EQ(answer.at("refused")[0].at("missing"), json::array({"Megatron-FSDP"}));
    EXPECT_EQ(answer.at("rows").size(), 2U);
}

TEST(Validate, PredictsNineTenthsOfTheRecordedTable) {
    const json answer = validate(recorded_table());
    constexpr int kRuns = 168;
    EXPECT_EQ(answer.at("rows").size() / 2 + answer.at("refused").size(), kRuns);
    EXPECT_LE(answer.at("refused").size(), kRuns / 10);
    const json& between = answer.at("summary").at("allocated_bytes");
    EXPECT_LE(between.at("median_abs_error"), 0.001);
    EXPECT_GE(between.at("within_1_percent"), 0.88);
    EXPECT_GE(between.at("within_5_percent"), 0.93);
    const json& peak = answer.at("summary").at("peak_allocated_bytes");
    EXPECT_LE(peak.at("median_abs_error"), 0.004);
    EXPECT_GE(peak.at("within_1_percent"), 0.75);
    EXPECT_GE(peak.at("within_5_percent"), 0.98);
}

// cuda-graph-warmup-steps is 0: no eager iteration before the capture, and no moments in it.
TEST(Validate, KnowsOfCapturesBeforeTheFirstIteration) {
    const json answer = validate(recorded_table() + " --job attn_cudagraph");
    ASSERT_EQ(answer.at("rows").size(), 2U);
    EXPECT_NEAR(answer.at("rows")[1].at("error").get<double>(), 0, 0.01);
    ASSERT_EQ(answer.at("parts").size(), 1U);
    std::int64_t total = answer.at("parts")[0].at("rounding");
    for (const json& state : answer.at("parts")[0].at("between_steps")) total += state.at("bytes").get<std::int64_t>();
    EXPECT_EQ(total, answer.at("rows")[0].at("predicted"));
    EXPECT_EQ(total + answer.at("parts")[0].at("within_step").get<std::int64_t>(),
              answer.at("rows")[1].at("predicted"));
}

TEST(Validate, TakesTheRunsOfOneTypeOfGpu) {
    const json answer = validate(recorded_table() + " --job no_mmap_bin_files --gpu a100");
    ASSERT_EQ(answer.at("rows").size(), 2U);
    EXPECT_EQ(answer.at("rows")[0].at("predicted"), 552'128'512);  // as recorded
}

TEST(Validate, ShowsRowsRefusalsAndASummary) {
    const TemporaryFolder folder;
    write_text(folder / "table.yaml", entry("sharded", "    use-megatron-fsdp: true\n") + entry("plain"));
    const CommandResult result = stowage("validate --megatron-memory " + (folder / "table.yaml").string());
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("plain"), std::string::npos);
    EXPECT_NE(result.out.find("Megatron-FSDP"), std::string::npos);
    EXPECT_NE(result.out.find("within 1 %"), std::string::npos);
}

TEST(Validate, PointsAtWhatIsWrongInATable) {
    const TemporaryFolder folder;
    const std::string path = (folder / "table.yaml").string();
    write_text(path, "- name: empty\n  args: {}\n");
    const CommandResult result = stowage("validate --megatron-memory " + path);
    EXPECT_EQ(result.code, 3);
    EXPECT_NE(result.error.find("table.yaml:1:3: error: empty: expected a mapping 'recorded'"), std::string::npos)
        << result.error;
}

TEST(Validate, NeedsATable) {
    const CommandResult result = stowage("validate");
    EXPECT_EQ(result.code, 2);
}

}  // namespace
}  // namespace stowage::cli
