#include "planner/program/megatron_manager.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/manager_driver.hpp"

// Unless a comment derives it, an expected number was read off Megatron-LM's own manager file running on a logging
// stand-in for streams and tensors. Every group here saves one tensor of 2 MiB, above the size filter.

namespace stowage::program {
namespace {

using tests::ChunkLayers;
using tests::flat;
using tests::Iteration;
using tests::ManagerCase;
using tests::ManagerDriver;
using types::Bytes;
using types::Module;
using types::OffloadChoice;
using types::RuleSet;
using Log = std::vector<std::string>;

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr Bytes kGroup{2 * kMiB};
constexpr Module kA = Module::core_attn;
constexpr Module kP = Module::attn_proj;
constexpr RuleSet kMain = RuleSet::main_2026_08;

/// `count` layers of core_attn, attn_proj.
ChunkLayers pairs(std::size_t count) { return ChunkLayers(count, flat({kA, kP}, kGroup)); }
ChunkLayers singles(std::size_t count) { return ChunkLayers(count, flat({kA}, kGroup)); }
OffloadChoice with_fraction(double fraction) { return {.modules = {}, .fraction = fraction}; }

std::int64_t table_mib(const ManagerDriver& driver, Module module) {
    return driver.manager().table_bytes(module).count / kMiB;
}

// ----------------------------------------------------------------------------------------------- one stage, two names

struct FractionCase {
    double fraction;
    std::int64_t microbatches;
    std::string first_flags;  ///< chunk 0: the margin keeps the last a and p, the fraction the tail of the six others
    std::string other_flags;  ///< eight groups are eligible
    std::int64_t copies;
    std::int64_t table_a;
    std::int64_t table_p;
};

// trunc(6 * (1 - f)) of chunk 0 and trunc(8 * (1 - f)) of the others go: 0.8 -> 1 and 1, 0.5 -> 3 and 4, 0.25 -> 4 and
// 6. Where the fraction keeps the last a or p of a chunk, the last-group rule has nothing left to keep.
const FractionCase kFractionCases[] = {
    {1.0, 4, "11111100", "11111111", 24, 6, 6}, {0.8, 4, "11111000", "11111110", 23, 6, 4},
    {0.5, 4, "11100000", "11110000", 15, 4, 2}, {0.25, 4, "11000000", "11000000", 8, 2, 2},
    {0.0, 1, "00000000", "", 0, 0, 0},
};

TEST(MegatronManager, CopiesWhatTheFractionLeavesOnOneStage) {
    for (const FractionCase& expected : kFractionCases) {
        SCOPED_TRACE(expected.fraction);
        ManagerDriver driver(tests::plain_pipeline(0, 1, expected.microbatches, pairs(4)),
                             with_fraction(expected.fraction), kMain);
        EXPECT_EQ(driver.record().copies, 8 * expected.microbatches);
        EXPECT_EQ(driver.flags(0), expected.first_flags);
        for (std::uint32_t chunk = 1; chunk < expected.microbatches; ++chunk)
            EXPECT_EQ(driver.flags(chunk), expected.other_flags);
        EXPECT_EQ(driver.steady().copies, expected.copies);
        EXPECT_FALSE(driver.manager().chunk_mismatch());
        EXPECT_EQ(table_mib(driver, kA), expected.table_a);
        EXPECT_EQ(table_mib(driver, kP), expected.table_p);
    }
}

TEST(MegatronManager, LosesTheChunkWhenEveryGroupStaysAndMoreChunksFollow) {
    for (const RuleSet rules : {RuleSet::core_0_19, kMain, RuleSet::dev}) {
        ManagerDriver driver(tests::plain_pipeline(0, 1, 4, pairs(4)), with_fraction(0), rules);
        EXPECT_EQ(driver.record().copies, 32);
        EXPECT_FALSE(driver.manager().chunk_mismatch());
        driver.steady();
        EXPECT_TRUE(driver.manager().chunk_mismatch());
    }
}

// Before July 2026 a group that stayed was never taken from the pending list, which hid the wrong test.
TEST(MegatronManager, CopiesNothingAtFractionZeroUnderTheOlderRules) {
    for (const RuleSet rules : {RuleSet::pr_3219, RuleSet::core_0_18}) {
        ManagerDriver driver(tests::plain_pipeline(0, 1, 4, pairs(4)), with_fraction(0), rules);
        EXPECT_EQ(driver.record().copies, 32);
        EXPECT_EQ(driver.steady().copies, 0);
        EXPECT_FALSE(driver.manager().chunk_mismatch());
        EXPECT_EQ(table_mib(driver, kA) + table_mib(driver, kP), 0);
    }
}

// -------------------------------------------------------------------------------------------------- pipelines, counts

TEST(MegatronManager, KeepsTwoOfAnEarlyStageAndTwoOfEachMicrobatchOnTheLast) {
    for (std::int64_t rank = 0; rank < 4; ++rank) {
        ManagerDriver driver(tests::plain_pipeline(rank, 4, 8, pairs(4)), {}, kMain);
        EXPECT_EQ(driver.record().copies, 64);
        EXPECT_EQ(driver.steady().copies, rank < 3 ? 62 : 48);
        EXPECT_EQ(table_mib(driver, kA), 6);  // one microbatch is counted, whatever is in flight
        EXPECT_EQ(table_mib(driver, kP), 6);
    }
}

/// 3 dense and 12 MoE layers over 2 ranks x 4 virtual stages: 3 dense, 2, 2, 2 MoE and 2, 2, 2 MoE, none.
ManagerCase mixed_stages(std::int64_t rank) {
    const ChunkLayers dense(3, tests::nested_attention(kGroup));
    const ChunkLayers moe(2, tests::nested_moe(kGroup));
    if (rank == 0) return tests::interleaved_pipeline(0, 2, 4, 2, {dense, moe, moe, moe});
    return tests::interleaved_pipeline(1, 2, 4, 2, {moe, moe, moe, ChunkLayers{}});
}

// The order that the driver computes, against the one worked out from the schedule table by hand: rank 0 runs
// 2 * (2 - 0 - 1) + 3 * 2 = 8 forwards first; A is virtual stage 0, chunks of two microbatches a group.
TEST(MegatronManager, IsDrivenInTheInterleavedOrderWorkedOutByHand) {
    const ManagerCase run = mixed_stages(0);
    // forward A0 A1 B0 B1 C0 C1 D0 D1 A2 ... are chunks 0 to 15; backward D0 D1 C0 C1 B0 B1 A0 A1 D2 D3 ...
    EXPECT_EQ(run.backward_order, (std::vector<std::uint32_t>{6, 7, 4, 5, 2, 3, 0, 1, 14, 15, 12, 13, 10, 11, 8, 9}));
    std::string words;
    for (const auto& step : run.steps) {
        words += step.forward ? 'F' : 'B';
        words += std::to_string(step.chunk) + ' ';
    }
    EXPECT_EQ(words,
              "F0 F1 F2 F3 F4 F5 F6 F7 F8 B6 F9 B7 F10 B4 F11 B5 F12 B2 F13 B3 F14 B0 F15 B1 "
              "B14 B15 B12 B13 B10 B11 B8 B9 ");
}

struct MixedCase {
    std::int64_t rank;
    std::int64_t groups;        ///< rank 0: 4 * (3 * 4 + 3 * 2 * 7); rank 1: 4 * 3 * 2 * 7
    std::int64_t copies;        ///< rank 0: seven by the margin, three names of D2 by the last-group rule
    std::int64_t table_attn;    ///< groups of each attention name in the table
    std::int64_t table_expert;  ///< of mlp_norm, expert_fc1 and moe_act
};

TEST(MegatronManager, CountsDenseAndMoeStagesOfAnInterleavedPipeline) {
    for (const MixedCase& expected : {MixedCase{0, 216, 206, 15, 9}, MixedCase{1, 168, 161, 11, 11}}) {
        SCOPED_TRACE(expected.rank);
        ManagerDriver driver(mixed_stages(expected.rank), {}, kMain);
        EXPECT_EQ(driver.record().copies, expected.groups);
        const Iteration steady = driver.steady();
        EXPECT_EQ(steady.copies, expected.copies);
        EXPECT_EQ(steady.reloads, expected.copies);
        EXPECT_FALSE(driver.manager().chunk_mismatch());
        for (const Module module : {Module::attn_norm, Module::qkv_linear, kA, kP})
            EXPECT_EQ(table_mib(driver, module), 2 * expected.table_attn);
        for (const Module module : {Module::mlp_norm, Module::expert_fc1, Module::moe_act})
            EXPECT_EQ(table_mib(driver, module), 2 * expected.table_expert);
    }
}

// The margin is a count of two, spent on a and p of A0, which the scan from the last backward meets first; expert_fc1
// of B0 gets none.
TEST(MegatronManager, SpendsTheMarginOnTheNamesMetFirst) {
    const ChunkLayers experts(3, flat({Module::expert_fc1}, kGroup));
    for (const auto& [rank, copies] : {std::pair{0, 32}, std::pair{1, 30}}) {
        ManagerDriver driver(tests::interleaved_pipeline(rank, 2, 4, 2, {pairs(3), experts}), {}, kMain);
        EXPECT_EQ(driver.record().copies, 36);
        EXPECT_EQ(driver.flags(0), "111100");
        EXPECT_EQ(driver.flags(2), "111");
        EXPECT_EQ(driver.steady().copies, copies);
        EXPECT_EQ(table_mib(driver, kA), 10);  // A0 2, A1 3 groups of 2 MiB
        EXPECT_EQ(table_mib(driver, kP), 10);
        EXPECT_EQ(table_mib(driver, Module::expert_fc1), 6);
    }
}

TEST(MegatronManager, LosesTheChunkWithOneLayerAndTwoNames) {
    for (const std::int64_t stages : {1, 2}) {
        ManagerDriver driver(tests::plain_pipeline(0, stages, 4, pairs(1)), {}, kMain);
        driver.record();
        driver.steady();
        EXPECT_TRUE(driver.manager().chunk_mismatch());
    }
    for (const auto& [rank, copies] : {std::pair{0, 6}, std::pair{1, 0}}) {
        ManagerDriver driver(tests::plain_pipeline(rank, 2, 4, pairs(1)), {}, RuleSet::pr_3219);
        EXPECT_EQ(driver.record().copies, 8);
        EXPECT_EQ(driver.steady().copies, copies);
        EXPECT_FALSE(driver.manager().chunk_mismatch());
    }
}

TEST(MegatronManager, ManagesOneLayerWithOneName) {
    ManagerDriver first_of_two(tests::plain_pipeline(0, 2, 2, singles(1)), {}, kMain);
    EXPECT_EQ(first_of_two.record().copies, 2);
    EXPECT_EQ(first_of_two.steady().copies, 1);
    EXPECT_FALSE(first_of_two.manager().chunk_mismatch());
    ManagerDriver alone(tests::plain_pipeline(0, 1, 2, singles(1)), {}, kMain);
    EXPECT_EQ(alone.record().copies, 2);
    EXPECT_EQ(alone.steady().copies, 0);
    EXPECT_FALSE(alone.manager().chunk_mismatch());
}

// --------------------------------------------------------------------------------------------------- fraction, delta

// One name, one microbatch, n + 1 layers: the margin takes one, the fraction trunc(n * (1 - f)) in doubles:
// 10 * (1 - 0.9) = 0.99..., 10 * (1 - 0.8) = 1.99..., 10 * (1 - 0.7) = 3.00...4, 5 * (1 - 0.8) = 0.99..., 4 * 0.7
// = 2.8.
TEST(MegatronManager, TruncatesTheFractionAsDoublesDo) {
    struct Case {
        double fraction;
        std::size_t eligible;
        std::int64_t dropped;
    };
    for (const Case& expected :
         {Case{0.9, 10, 0}, Case{0.8, 10, 1}, Case{0.7, 10, 3}, Case{0.8, 5, 0}, Case{0.3, 4, 2}}) {
        SCOPED_TRACE(expected.fraction);
        ManagerDriver driver(tests::plain_pipeline(0, 1, 1, singles(expected.eligible + 1)),
                             with_fraction(expected.fraction), kMain);
        driver.record();
        const auto copies = static_cast<std::int64_t>(expected.eligible) - expected.dropped;
        EXPECT_EQ(driver.steady().copies, copies);
        EXPECT_EQ(table_mib(driver, kA), 2 * copies);
    }
}

/// Flags of the first chunk of rank `rank` of four, four layers of a and p, with this delta.
std::string flags_with_delta(std::int64_t rank, std::int64_t delta) {
    ManagerDriver driver(tests::plain_pipeline(rank, 4, 8, pairs(4)),
                         {.modules = {}, .delta_bytes_across_pp_ranks = delta}, kMain);
    driver.record();
    EXPECT_EQ(driver.flags(1), "11111111");  // one chunk is enough
    return driver.flags(0);
}

TEST(MegatronManager, KeepsTheDeltaFromTheFrontOfTheFirstBackwardChunk) {
    EXPECT_EQ(flags_with_delta(0, 3 * kMiB), "11111100");      // rank 0 keeps 0 bytes more
    EXPECT_EQ(flags_with_delta(1, 4 * kMiB), "00111100");      // 4 MiB are two groups exactly
    EXPECT_EQ(flags_with_delta(2, 2 * kMiB), "00111100");      // linear in the rank
    EXPECT_EQ(flags_with_delta(1, 4 * kMiB + 1), "00011100");  // overshoots by less than a group
    EXPECT_EQ(flags_with_delta(3, 1), "01111100");
}

// Chunk 0 holds six flagged groups and eight in all; 16 MiB empty the six (12 MiB) and two of chunk 1.
TEST(MegatronManager, CarriesTheDeltaIntoTheNextChunkOfTheBackwardOrder) {
    ManagerDriver driver(tests::plain_pipeline(1, 4, 8, pairs(4)),
                         {.modules = {}, .delta_bytes_across_pp_ranks = 16 * kMiB}, kMain);
    driver.record();
    EXPECT_EQ(driver.flags(0), "00000000");
    EXPECT_EQ(driver.flags(1), "00111111");
    EXPECT_EQ(driver.flags(2), "11111111");
}

// A group that the delta keeps stays pending under the older rules, and every later group of its name in the chunk
// resolves to it: chunk 0 copies nothing at all, 7 * 8 others do. The table still counts the flags: a.2, p.1 and p.2.
TEST(MegatronManager, LosesTheLaterGroupsOfANameUnderTheOlderRulesWhenTheDeltaKeepsOne) {
    ManagerDriver driver(tests::plain_pipeline(2, 4, 8, pairs(4)),
                         {.modules = {}, .delta_bytes_across_pp_ranks = 3 * kMiB}, RuleSet::pr_3219);
    driver.record();
    EXPECT_EQ(driver.flags(0), "00011100");
    EXPECT_EQ(driver.steady().copies, 56);
    EXPECT_EQ(table_mib(driver, kA), 2);
    EXPECT_EQ(table_mib(driver, kP), 4);
    EXPECT_FALSE(driver.manager().chunk_mismatch());
}

TEST(MegatronManager, LosesTheChunkWhenTheDeltaKeepsALeadingRun) {
    ManagerDriver driver(tests::plain_pipeline(2, 4, 8, pairs(4)),
                         {.modules = {}, .delta_bytes_across_pp_ranks = 3 * kMiB}, kMain);
    driver.record();
    driver.steady();
    EXPECT_TRUE(driver.manager().chunk_mismatch());
}

// An enclosing group that is still open keeps the chunk: only attn_norm of the first layer stays, the groups inside it
// go, and 4 * 4 layers of 4 names lose one group to the delta and four to the margin.
TEST(MegatronManager, KeepsTheChunkWhenAnEnclosingGroupIsOpen) {
    const ChunkLayers layers(4, tests::nested_attention(kGroup));
    ManagerDriver driver(tests::plain_pipeline(1, 4, 4, layers), {.modules = {}, .delta_bytes_across_pp_ranks = 1},
                         kMain);
    EXPECT_EQ(driver.record().copies, 64);
    EXPECT_EQ(driver.steady().copies, 64 - 1 - 4);
    EXPECT_FALSE(driver.manager().chunk_mismatch());
}

// p saves nothing. The margin still spends a keep on it; the fraction counts a only: trunc(3 * 0.5) = 1.
TEST(MegatronManager, GivesEmptyGroupsAMarginButNoShareOfTheFraction) {
    tests::LayerHooks layer = flat({kA}, kGroup);
    const tests::LayerHooks empty = flat({kP}, Bytes{0});
    layer.insert(layer.end(), empty.begin(), empty.end());
    ManagerDriver driver(tests::plain_pipeline(0, 1, 1, ChunkLayers(4, layer)), with_fraction(0.5), kMain);
    EXPECT_EQ(driver.record().copies, 4);
    EXPECT_EQ(driver.flags(0), "11110100");
    EXPECT_EQ(driver.steady().copies, 2);
    EXPECT_EQ(table_mib(driver, kP), 0);
}

// The delta switches empty groups off on its way and pays nothing for them.
TEST(MegatronManager, SwitchesEmptyGroupsOffWhileTheDeltaLasts) {
    tests::LayerHooks layer = flat({kP}, Bytes{0});
    const tests::LayerHooks full = flat({kA}, kGroup);
    layer.insert(layer.end(), full.begin(), full.end());
    ManagerDriver driver(tests::plain_pipeline(1, 2, 4, ChunkLayers(4, layer)),
                         {.modules = {}, .delta_bytes_across_pp_ranks = 3 * kMiB}, kMain);
    driver.record();
    EXPECT_EQ(driver.flags(0), "00001100");  // p a p a, then the margin's last p and a
}

// ------------------------------------------------------------------------------------------------------------ backward

TEST(MegatronManager, ReadsEveryGroupInlineInTheFirstIteration) {
    ManagerDriver driver(tests::plain_pipeline(0, 1, 4, pairs(4)), {}, kMain);
    const Iteration record = driver.record();
    EXPECT_EQ(record.copies, 32);
    EXPECT_EQ(record.inline_reads, 32);
    EXPECT_EQ(record.reloads, 0);
}

// Of each layer's seven, the enclosing norms come back by the prefetch that an inner group's end launches.
TEST(MegatronManager, ReadsTheInnerGroupsInlineInTheFirstIterationWhenNamesNest) {
    ManagerDriver driver(tests::plain_pipeline(0, 1, 1, ChunkLayers(3, tests::nested_moe(kGroup))), {}, kMain);
    const Iteration record = driver.record();
    EXPECT_EQ(record.copies, 21);
    EXPECT_EQ(record.inline_reads, 15);
    EXPECT_EQ(record.reloads, 6);
    EXPECT_EQ(record.unawaited_reads, 6);  // their commit was before their prefetch: Megatron waits for nothing here
}

// Groups 0 to 5 are a.0 p.0 a.1 p.1 a.2 p.2; those of the last layer stay and launch the first prefetches.
TEST(MegatronManager, PrefetchesOneLayerAheadInTheOrderOfMegatronsLog) {
    ManagerDriver driver(tests::plain_pipeline(0, 1, 1, pairs(3)), {}, kMain);
    driver.record();
    EXPECT_EQ(driver.steady().log, (Log{"off c0g0", "off c0g1", "off c0g2", "off c0g3", "keep c0g4", "keep c0g5",  //
                                        "load c0g3", "load c0g2", "wait c0g3", "load c0g1", "wait c0g2", "load c0g0",
                                        "wait c0g1", "wait c0g0"}));
}

// Flags 11100000: the kept p.3 prefetches a.1, and the kept a.3 finds a reload of its name and waits for it, a layer
// and a half before a.1 needs it; so on down.
TEST(MegatronManager, WaitsForTheOldestReloadOfTheNameWhenReloadsRunAhead) {
    ManagerDriver driver(tests::plain_pipeline(0, 1, 1, pairs(4)), with_fraction(0.5), kMain);
    driver.record();
    EXPECT_EQ(driver.steady().log,
              (Log{"off c0g0", "off c0g1", "off c0g2", "keep c0g3", "keep c0g4", "keep c0g5", "keep c0g6", "keep c0g7",
                   "load c0g2", "wait c0g2", "load c0g1", "wait c0g1", "load c0g0", "wait c0g0"}));
}

// On an early stage the next chunk in backward order has finished its forward, so the end of one chunk's backward
// starts on the next one's last layer: two layers, chunk 1 next after chunk 0.
TEST(MegatronManager, PrefetchesTheLastLayerOfTheNextFinishedChunk) {
    ManagerDriver driver(tests::plain_pipeline(0, 3, 3, pairs(2)), {}, kMain);
    driver.record();
    const Log log = driver.steady().log;
    // Chunk 0 keeps g2 g3. Its backward: load g1, load g0, wait g1, then the reloads are spent: load chunk 1's g3.
    const auto found = std::find(log.begin(), log.end(), "load c0g1");
    ASSERT_GE(log.end() - found, 6);
    EXPECT_EQ(Log(found, found + 6),
              (Log{"load c0g1", "load c0g0", "wait c0g1", "load c1g3", "wait c0g0", "load c1g2"}));
}

TEST(MegatronManager, ReadsNothingInlineAndAwaitsEveryReloadOnceThePolicyRuns) {
    std::vector<std::pair<ManagerCase, double>> cases;
    for (const double fraction : {1.0, 0.8, 0.5, 0.25}) {
        cases.emplace_back(tests::plain_pipeline(0, 1, 4, pairs(4)), fraction);
        cases.emplace_back(tests::plain_pipeline(0, 1, 2, ChunkLayers(3, tests::nested_moe(kGroup))), fraction);
        for (std::int64_t rank = 0; rank < 4; ++rank)
            cases.emplace_back(tests::plain_pipeline(rank, 4, 8, pairs(4)), fraction);
    }
    for (const std::int64_t rank : {0, 1}) cases.emplace_back(mixed_stages(rank), 1.0);
    for (const auto& [run, fraction] : cases) {
        SCOPED_TRACE("rank " + std::to_string(run.pipeline_rank) + ", fraction " + std::to_string(fraction));
        ManagerDriver driver(run, with_fraction(fraction), kMain);
        driver.record();
        for (int iteration = 0; iteration < 2; ++iteration) {
            const Iteration steady = driver.steady();
            EXPECT_FALSE(driver.manager().chunk_mismatch());
            EXPECT_GT(steady.copies, 0);
            EXPECT_EQ(steady.reloads, steady.copies);
            EXPECT_EQ(steady.inline_reads, 0);
            EXPECT_EQ(steady.unawaited_reads, 0);
        }
    }
}

TEST(MegatronManager, DoesTheSameInEverySteadyIteration) {
    ManagerDriver driver(mixed_stages(0), with_fraction(0.7), kMain);
    driver.record();
    const Log first = driver.steady().log;
    EXPECT_EQ(driver.steady().log, first);
}

}  // namespace
}  // namespace stowage::program
