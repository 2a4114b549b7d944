// Public reports of users, restated as small cases and tried on the whole path.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "planner/search/candidates.hpp"
#include "planner/search/job.hpp"
#include "planner/search/search.hpp"
#include "reports/plan_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"

namespace stowage::tests {
namespace {

using types::Bytes;
using types::Module;

/// A scenario on machines of eight H100: `model` beside a small vocabulary, `parallel`, `batch` and `offload` are the
/// keys inside these groups.
struct Case {
    std::string model;
    std::string parallel;
    std::string batch;
    std::string offload;
    int nodes = 1;
};

search::Job job_of(const Case& given) {
    const std::string text = fmt::format(
        "schema: stowage/scenario/1\n"
        "model: {{name: case, vocab_size: 4096, {}}}\n"
        "env: {{NVTE_CPU_OFFLOAD_V1: 1}}\n"
        "parallel: {{{}}}\n"
        "batch: {{micro_batch_size: 1, {}}}\n"
        "precision: bf16\n"
        "optimizer: {{optimizer: adam, use_distributed_optimizer: true}}\n"
        "offload: {{{}}}\n"
        "hardware: {{node: hardware/h100-8gpu.yaml, nodes: {}}}\n",
        given.model, given.parallel, given.batch, given.offload, given.nodes);
    return search::prepare(reader::read_scenario_text(STOWAGE_SOURCE_DIR "/scenarios/case.yaml", text));
}

search::Outcome simulate(const search::Job& job) {
    const types::Offload& offload = job.scenario.offload;
    return search::evaluate(job,
                            search::make_choice(job, *offload.offload_modules, *offload.activation_offload_fraction));
}

std::int64_t groups(const search::RankOutcome& rank) {
    return std::accumulate(rank.offloaded.groups.begin(), rank.offloaded.groups.end(), std::int64_t{0});
}

template <class Values>
auto of(Module module, const Values& values) {
    return values[static_cast<std::size_t>(module)];
}

const std::string kDense = "hidden_size: 2048, ffn_hidden_size: 8192, num_attention_heads: 16";

// https://github.com/NVIDIA/Megatron-LM/pull/5101 and /pull/3697: the fraction counts groups, and how many stay is
// truncated in floating point. Eleven layers, one microbatch: the margin keeps the last group, ten are left, and
// trunc(10 (1 - f)) of them stay: trunc(0.99...) = 0, trunc(1.99...) = 1, trunc(3.00...) = 3, 5.
TEST(FieldCases, AFractionIsOfGroupsAndTruncatesWhatItKeeps) {
    for (const auto& [fraction, expected] : {std::pair{"0.9", 10}, {"0.8", 9}, {"0.7", 7}, {"0.5", 5}}) {
        const search::Job job =
            job_of({.model = kDense + ", num_layers: 11",
                    .parallel = "",
                    .batch = "global_batch_size: 8, seq_length: 4096",
                    .offload = std::string{"offload_modules: [qkv_linear], activation_offload_fraction: "} + fraction});
        EXPECT_EQ(groups(simulate(job).ranks[0]), expected) << fraction;
    }
}

// The same thread: a share of groups is not a share of bytes. Four layers, two modules, four microbatches, fraction
// 0.8. The first chunk's margin keeps the last of each: of its 6, trunc(1.2) = 1 stays. The other chunks flag
// 8 - trunc(1.6) = 7, whose last core_attn is kept when backward follows at once: 6 each. 5 + 3 * 6 = 23 of 32 groups.
// Group sizes: query, key, value and output of 4096 x 2048 are 16 MiB each; attn_proj is the output again.
TEST(FieldCases, SharesOfGroupsAndOfBytesDiffer) {
    const search::Job job = job_of({.model = kDense + ", num_layers: 4",
                                    .parallel = "",
                                    .batch = "global_batch_size: 32, seq_length: 4096",
                                    .offload = "offload_modules: [core_attn, attn_proj], "
                                               "activation_offload_fraction: 0.8"});
    const search::RankOutcome rank = simulate(job).ranks[0];
    EXPECT_EQ(groups(rank), 23);
    EXPECT_EQ(rank.offloaded.eligible_groups, 32);
    EXPECT_EQ(of(Module::core_attn, rank.offloaded.groups), 12);
    EXPECT_EQ(of(Module::attn_proj, rank.offloaded.groups), 11);
    EXPECT_EQ(of(Module::core_attn, rank.offloaded.bytes), Bytes{12 * (std::int64_t{64} << 20)});
    EXPECT_EQ(of(Module::attn_proj, rank.offloaded.bytes), Bytes{11 * (std::int64_t{16} << 20)});
    // Megatron's own table counts what is flagged in the first microbatch: 3 and 2 groups.
    EXPECT_EQ(of(Module::core_attn, rank.offloaded.table), Bytes{3 * (std::int64_t{64} << 20)});
    EXPECT_EQ(of(Module::attn_proj, rank.offloaded.table), Bytes{2 * (std::int64_t{16} << 20)});
}

// Early stages keep the last group of each name of the first microbatch: 64 - 2. On the last stage every forward is
// followed by its backward, so each microbatch keeps two: 64 - 16. Megatron's table says the same on every rank.
TEST(FieldCases, StagesOfAPipelineMoveDifferentNumbersOfGroups) {
    const search::Job job = job_of({.model = kDense + ", num_layers: 16",
                                    .parallel = "pipeline_model_parallel_size: 4",
                                    .batch = "global_batch_size: 16, seq_length: 4096",
                                    .offload = "offload_modules: [core_attn, attn_proj]"});
    const search::Outcome outcome = simulate(job);
    const std::int64_t expected[] = {62, 62, 62, 48};
    for (std::size_t stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(groups(outcome.ranks[stage]), expected[stage]) << stage;
        EXPECT_EQ(of(Module::core_attn, outcome.ranks[stage].offloaded.table), Bytes{3 * (std::int64_t{64} << 20)});
    }
}

// https://github.com/NVIDIA/Megatron-LM/issues/1784: the tokens that reach a rank's experts are topk s b etp / tp,
// whatever EP is: 8 * 4096 rows of 7168 in bf16 are 448 MiB a layer, half of it with TP 2 and experts whole.
TEST(FieldCases, InputOfTheExpertsDoesNotDependOnExpertParallelism) {
    for (const int tensor : {1, 2}) {
        for (const int expert : {8, 64}) {
            const search::Job job =
                job_of({.model = "hidden_size: 7168, ffn_hidden_size: 18432, num_attention_heads: 128, kv_channels: "
                                 "128, num_layers: 4, num_experts: 256, moe_router_topk: 8, moe_ffn_hidden_size: 2048",
                        .parallel = fmt::format("tensor_model_parallel_size: {}, sequence_parallel: {}, "
                                                "expert_model_parallel_size: {}, expert_tensor_parallel_size: 1",
                                                tensor, tensor > 1, expert),
                        .batch = fmt::format("global_batch_size: {}, seq_length: 4096", 64 / tensor),
                        .offload = "offload_modules: [expert_fc1]",
                        .nodes = 8});
            const search::RankOutcome rank = simulate(job).ranks[0];
            // One of the four layers stays; pinned blocks are powers of two and the first iteration moves all four.
            EXPECT_EQ(of(Module::expert_fc1, rank.offloaded.bytes), Bytes{3 * (std::int64_t{448} << 20) / tensor});
            EXPECT_EQ(rank.pinned_host, Bytes{4 * (std::int64_t{512} << 20) / tensor});
        }
    }
}

// https://github.com/sgl-project/sglang/pull/36562: pinned blocks are rounded up to powers of two, on every rank of a
// host. Four layers' 448 MiB take 4 * 512 MiB on each of eight ranks: 16 GiB for 14 GiB of data.
TEST(FieldCases, TheHostHoldsTheRoundedBlocksOfAllItsRanks) {
    search::Job job = job_of({.model = "hidden_size: 7168, ffn_hidden_size: 18432, num_attention_heads: 32, "
                                       "num_layers: 4, num_experts: 8, moe_router_topk: 8, moe_ffn_hidden_size: 256",
                              .parallel = "",
                              .batch = "global_batch_size: 8, seq_length: 4096",
                              .offload = "offload_modules: [expert_fc1]"});
    const search::Outcome outcome = simulate(job);
    EXPECT_EQ(search::pinned_on_fullest_node(job, outcome), Bytes{std::int64_t{16} << 30});
    job.scenario.limits.host_memory_per_node = Bytes{std::int64_t{15} << 30};
    EXPECT_FALSE(search::fits(job, outcome));
    job.scenario.limits.host_memory_per_node = Bytes{std::int64_t{16} << 30};
    EXPECT_TRUE(search::fits(job, outcome));
}

// https://github.com/NVIDIA/Megatron-LM/issues/4350: a job whose tensors are all below the size filter moves nothing.
// 512 tokens to 2 experts each: 1024 rows of 512 and of 2 * 256.
TEST(FieldCases, GroupsBelowTheSizeFilterAreNamedWithTheirLargestTensor) {
    const search::Job job = job_of({.model = "hidden_size: 512, ffn_hidden_size: 512, num_attention_heads: 4, "
                                             "num_layers: 4, num_experts: 4, moe_router_topk: 2, "
                                             "moe_ffn_hidden_size: 256",
                                    .parallel = "",
                                    .batch = "global_batch_size: 32, seq_length: 512",
                                    .offload = "offload_modules: [expert_fc1, moe_act]"});
    const search::Outcome outcome = simulate(job);
    EXPECT_EQ(groups(outcome.ranks[0]), 0);
    const std::string reason = ": every tensor is below min_offloaded_tensor_size (1048576 elements), the largest has ";
    const std::vector<std::string> expected{"expert_fc1" + reason + "524288", "moe_act" + reason + "524288"};
    EXPECT_EQ(reports::simulation_json(job, outcome).at("notes").get<std::vector<std::string>>(), expected);
}

}  // namespace
}  // namespace stowage::tests
