#include "planner/program/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stowage::program {
namespace {

using Kind = ScheduleStep::Kind;

/// Virtual stages are A, B, C, ..: B2 is microbatch 2 on the second one.
std::string text(Chunk chunk) {
    return std::string(1, static_cast<char>('A' + chunk.virtual_stage)) + std::to_string(chunk.microbatch);
}

std::string text(const std::vector<Chunk>& chunks) {
    std::string words;
    for (const Chunk chunk : chunks) words += (words.empty() ? "" : " ") + text(chunk);
    return words;
}

/// F: forward, B: backward; sf, rf, sb, rb: the four transfers, in () when waited for, in {} when posted, ~() awaits.
std::string text(const std::vector<ScheduleStep>& steps) {
    constexpr const char* kNames[] = {"sf ", "rf ", "sb ", "rb "};
    std::string words;
    for (const ScheduleStep& step : steps) {
        if (!words.empty()) words += ' ';
        if (step.kind == Kind::forward) words += "F" + text(step.chunk);
        if (step.kind == Kind::backward) words += "B" + text(step.chunk);
        if (step.kind == Kind::paired) words += "F" + text(step.chunk) + "|B" + text(step.other);
        if (step.transfers.empty()) continue;
        std::string inside;
        for (const Transfer& transfer : step.transfers)
            inside += (inside.empty() ? "" : ", ") + std::string(kNames[index(transfer.kind)]) + text(transfer.chunk);
        words += step.kind == Kind::post ? "{" + inside + "}" : (step.kind == Kind::await ? "~(" : "(") + inside + ")";
    }
    return words;
}

PipelineShape plain(std::int64_t rank, std::int64_t ranks, std::int64_t microbatches) {
    return {.rank = rank, .ranks = ranks, .virtual_stages = 1, .microbatches = microbatches, .group = ranks};
}

PipelineShape interleaved(std::int64_t rank, std::int64_t ranks, std::int64_t virtual_stages, std::int64_t microbatches,
                          std::int64_t group, bool overlapped = true) {
    return {.rank = rank,
            .ranks = ranks,
            .virtual_stages = virtual_stages,
            .microbatches = microbatches,
            .group = group,
            .overlapped_transfers = overlapped};
}

/// The same steps with a forward and a backward in place of a pair.
std::vector<ScheduleStep> one_by_one(const std::vector<ScheduleStep>& steps) {
    std::vector<ScheduleStep> all;
    for (const ScheduleStep& step : steps) {
        if (step.kind == Kind::paired) {
            all.push_back({Kind::forward, step.chunk, {}, {}});
            all.push_back({Kind::backward, step.other, {}, {}});
        } else {
            all.push_back(step);
        }
    }
    return all;
}

std::vector<Chunk> chunks_of(const std::vector<ScheduleStep>& steps, Kind kind) {
    std::vector<Chunk> found;
    for (const ScheduleStep& step : one_by_one(steps))
        if (step.kind == kind) found.push_back(step.chunk);
    return found;
}

/// The transfers of one kind in the order they are issued.
std::vector<Chunk> transfers_of(const std::vector<ScheduleStep>& steps, TransferKind kind) {
    std::vector<Chunk> found;
    for (const ScheduleStep& step : steps)
        if (step.kind == Kind::exchange || step.kind == Kind::post)
            for (const Transfer& transfer : step.transfers)
                if (transfer.kind == kind) found.push_back(transfer.chunk);
    return found;
}

std::int64_t peak_in_flight(const std::vector<ScheduleStep>& steps) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const ScheduleStep& step : one_by_one(steps)) {
        now += step.kind == Kind::forward ? 1 : step.kind == Kind::backward ? -1 : 0;
        peak = std::max(peak, now);
    }
    return peak;
}

/// Every shape of a small grid: one virtual stage, and several with groups from the number of ranks up.
template <class Check>
void for_each_shape(Check check) {
    for (std::int64_t ranks = 1; ranks <= 5; ++ranks)
        for (std::int64_t microbatches = 1; microbatches <= 9; ++microbatches)
            for (std::int64_t rank = 0; rank < ranks; ++rank) check(plain(rank, ranks, microbatches));
    for (std::int64_t ranks = 2; ranks <= 4; ++ranks)
        for (std::int64_t stages = 2; stages <= 4; ++stages)
            for (std::int64_t group = ranks; group <= ranks + 2; ++group)
                for (std::int64_t groups = 1; groups <= 3; ++groups)
                    for (std::int64_t rank = 0; rank < ranks; ++rank)
                        for (const bool overlapped : {true, false})
                            for (const bool paired : {true, false}) {
                                PipelineShape shape =
                                    interleaved(rank, ranks, stages, groups * group, group, overlapped);
                                shape.paired = paired;
                                check(shape);
                            }
}

std::string name_of(const PipelineShape& shape) {
    return "rank " + std::to_string(shape.rank) + " of " + std::to_string(shape.ranks) + ", " +
           std::to_string(shape.virtual_stages) + " virtual stages, " + std::to_string(shape.microbatches) +
           " microbatches in groups of " + std::to_string(shape.group) +
           (shape.overlapped_transfers ? ", posted" : "") + (shape.paired ? ", paired" : "");
}

TEST(Schedule, AlternatesForwardAndBackwardOnOneStageWithoutTransfers) {
    EXPECT_EQ(text(pipeline_schedule(plain(0, 1, 3))), "FA0 BA0 FA1 BA1 FA2 BA2");
}

// Two stages: the first runs one forward ahead, the last none.
TEST(Schedule, OrdersTwoStagesAndThreeMicrobatchesAsByHand) {
    EXPECT_EQ(text(pipeline_schedule(plain(0, 2, 3))),
              "FA0 (sf A0) FA1 (sf A1, rb A0) BA0 FA2 (sf A2, rb A1) BA1 (rb A2) BA2");
    EXPECT_EQ(text(pipeline_schedule(plain(1, 2, 3))),
              "(rf A0) FA0 BA0 (sb A0, rf A1) FA1 BA1 (sb A1, rf A2) FA2 BA2 (sb A2)");
}

// Fewer microbatches than stages: the first stage has all its forwards before the first backward comes back.
TEST(Schedule, HasNoSteadyPhaseWhenMicrobatchesRunOutInTheWarmUp) {
    EXPECT_EQ(text(pipeline_schedule(plain(0, 4, 2))), "FA0 (sf A0) FA1 (sf A1) (rb A0) BA0 (rb A1) BA1");
    EXPECT_EQ(text(pipeline_schedule(plain(2, 4, 2))),
              "(rf A0) FA0 (sf A0) (rf A1) FA1 (sf A1, rb A0) BA0 (sb A0) (rb A1) BA1 (sb A1)");
    EXPECT_EQ(warmup_chunks(plain(0, 4, 2)), 2);  // min(4 - 0 - 1, 2)
    EXPECT_EQ(warmup_chunks(plain(2, 4, 2)), 1);  // min(4 - 2 - 1, 2)
}

// The table of the schedule: for each group of microbatches, each virtual stage, each microbatch; backwards with the
// stages reversed.
TEST(Schedule, RunsAGroupThroughOneVirtualStageBeforeTheNext) {
    EXPECT_EQ(text(forward_chunks(interleaved(0, 2, 2, 4, 2))), "A0 A1 B0 B1 A2 A3 B2 B3");
    EXPECT_EQ(text(backward_chunks(interleaved(0, 2, 2, 4, 2))), "B0 B1 A0 A1 B2 B3 A2 A3");
    EXPECT_EQ(text(forward_chunks(interleaved(0, 2, 3, 3, 3))), "A0 A1 A2 B0 B1 B2 C0 C1 C2");
    EXPECT_EQ(text(forward_chunks(interleaved(0, 2, 2, 5, 3))), "A0 A1 A2 B0 B1 B2 A3 A4 B3 B4");  // a short last group
}

// min(2 (p - r - 1) + (v - 1) group, v m): 2 + 2 = 4 on the first of two ranks, 2 on the last; capped by the 4 chunks.
TEST(Schedule, WarmsUpByTwiceTheRanksBehindAndTheGroupsBefore) {
    EXPECT_EQ(warmup_chunks(interleaved(0, 2, 2, 4, 2)), 4);
    EXPECT_EQ(warmup_chunks(interleaved(1, 2, 2, 4, 2)), 2);
    EXPECT_EQ(warmup_chunks(interleaved(0, 4, 3, 8, 5)), 2 * 3 + 2 * 5);
    EXPECT_EQ(warmup_chunks(interleaved(0, 2, 2, 2, 2)), 4);
    PipelineShape shape = interleaved(1, 2, 2, 4, 2);
    shape.paired = true;
    EXPECT_EQ(warmup_chunks(shape), 3);
}

// Two ranks, two virtual stages, four microbatches in groups of two. Rank 0 gets B0's input when rank 1, one chunk
// behind, has done A0, so after its own A1.
TEST(Schedule, PostsInterleavedTransfersRightAfterTheirChunk) {
    EXPECT_EQ(text(pipeline_schedule(interleaved(0, 2, 2, 4, 2))),
              "FA0 (sf A0) FA1 (sf A1, rf B0) FB0 (sf B0, rf B1) FB1 (sf B1) {rb B0} "
              "FA2 {sf A2} ~(rb B0) BB0 {sb B0, rb B1} "
              "~(sf A2) FA3 {sf A3, rf B2} ~(sb B0, rb B1) BB1 {sb B1, rb A0} "
              "~(sf A3, rf B2) FB2 {sf B2, rf B3} ~(sb B1, rb A0) BA0 {rb A1} "
              "~(sf B2, rf B3) FB3 {sf B3} ~(rb A1) BA1 {rb B2} ~(sf B3) ~(rb B2) "
              "BB2 (sb B2, rb B3) BB3 (sb B3, rb A2) BA2 (rb A3) BA3");
}

TEST(Schedule, ExchangesInPairsWhenTransfersDoNotOverlap) {
    EXPECT_EQ(text(pipeline_schedule(interleaved(1, 2, 2, 2, 2, false))),
              "(rf A0) FA0 (sf A0, rf A1) FA1 (sf A1, rf B0) FB0 BB0 (rf B1, sb B0) FB1 BB1 (sb B1, rb A0) "
              "BA0 (sb A0, rb A1) BA1 (sb A1)");
}

// On one rank every backward but the last has the next microbatch's forward beside it.
TEST(Schedule, PairsTheForwardOfOneMicrobatchWithTheBackwardOfTheOneBefore) {
    PipelineShape shape = plain(0, 1, 3);
    shape.paired = true;
    EXPECT_EQ(text(pipeline_schedule(shape)), "FA0 FA1|BA0 FA2|BA1 BA2");
    shape.microbatches = 1;
    EXPECT_EQ(text(pipeline_schedule(shape)), "FA0 BA0");
}

// One forward more in the warm-up, then pairs: both inputs are awaited before, both results posted after.
TEST(Schedule, PairsInterleavedChunksAfterOneMoreForward) {
    PipelineShape shape = interleaved(1, 2, 2, 2, 2);
    shape.paired = true;
    EXPECT_EQ(text(pipeline_schedule(shape)),
              "(rf A0) FA0 (sf A0, rf A1) FA1 (sf A1, rf B0) FB0 (rf B1) FB1|BB0 {sb B0} ~(sb B0) "
              "BB1 (sb B1, rb A0) BA0 (sb A0, rb A1) BA1 (sb A1)");
}

TEST(Schedule, RunsEveryChunkOnceForwardAndLaterOnceBackward) {
    for_each_shape([](const PipelineShape& shape) {
        SCOPED_TRACE(name_of(shape));
        const auto steps = pipeline_schedule(shape);
        EXPECT_EQ(chunks_of(steps, Kind::forward), forward_chunks(shape));
        EXPECT_EQ(chunks_of(steps, Kind::backward), backward_chunks(shape));
        std::map<Chunk, int> state;
        for (const ScheduleStep& step : one_by_one(steps)) {
            if (step.kind == Kind::forward) {
                EXPECT_EQ(state[step.chunk]++, 0);
            }
            if (step.kind == Kind::backward) {
                EXPECT_EQ(state[step.chunk]++, 1);
            }
        }
        EXPECT_EQ(std::ssize(state), shape.microbatches * shape.virtual_stages);
    });
}

// Stage r of p waits for the p - r - 1 stages behind it, so it holds p - r microbatches if there are as many;
// interleaved it holds its warm-up and one chunk more.
TEST(Schedule, HoldsItsWarmUpAndOneChunkMore) {
    for_each_shape([](const PipelineShape& shape) {
        SCOPED_TRACE(name_of(shape));
        const std::int64_t chunks = shape.microbatches * shape.virtual_stages;
        EXPECT_EQ(peak_in_flight(pipeline_schedule(shape)), std::min(warmup_chunks(shape) + 1, chunks));
        if (shape.virtual_stages == 1) {
            EXPECT_EQ(warmup_chunks(shape) + 1, std::min(shape.ranks - shape.rank, shape.microbatches + 1));
        }
    });
}

// What a rank receives before its first backward, by virtual stage: on the last rank every virtual stage but the last
// holds a group of microbatches, the last one holds one.
TEST(Schedule, HoldsAGroupOfEveryVirtualStageButTheLastOnTheLastRank) {
    const PipelineShape shape = interleaved(3, 4, 3, 16, 5);
    std::map<std::int32_t, int> held;
    for (const ScheduleStep& step : pipeline_schedule(shape)) {
        if (step.kind == Kind::backward) break;
        if (step.kind == Kind::forward) ++held[step.chunk.virtual_stage];
    }
    EXPECT_EQ(held, (std::map<std::int32_t, int>{{0, 5}, {1, 5}, {2, 1}}));
}

// The k-th send of a rank and the k-th receive of its neighbour are one transfer: of the same microbatch, and where the
// ring closes from one virtual stage to the next.
TEST(Schedule, MeetsEverySendWithTheNeighboursReceive) {
    for_each_shape([](const PipelineShape& shape) {
        SCOPED_TRACE(name_of(shape));
        PipelineShape next = shape;
        next.rank = (shape.rank + 1) % shape.ranks;
        const bool wraps = next.rank == 0;
        if (wraps && shape.virtual_stages == 1) return;
        const auto here = pipeline_schedule(shape);
        const auto there = pipeline_schedule(next);
        std::vector<Chunk> sent = transfers_of(here, TransferKind::send_forward);
        std::vector<Chunk> received = transfers_of(here, TransferKind::receive_backward);
        for (auto* chunks : {&sent, &received})
            for (Chunk& chunk : *chunks) chunk.virtual_stage += wraps ? 1 : 0;
        EXPECT_EQ(sent, transfers_of(there, TransferKind::receive_forward));
        EXPECT_EQ(received, transfers_of(there, TransferKind::send_backward));
    });
}

TEST(Schedule, HasEveryInputBeforeItsForwardAndEveryGradientBeforeItsBackward) {
    for_each_shape([](const PipelineShape& shape) {
        SCOPED_TRACE(name_of(shape));
        std::map<std::pair<TransferKind, Chunk>, int> there;
        for (const ScheduleStep& step : one_by_one(pipeline_schedule(shape))) {
            if (step.kind == Kind::exchange || step.kind == Kind::await)
                for (const Transfer& transfer : step.transfers) ++there[{transfer.kind, transfer.chunk}];
            const bool first = shape.rank == 0 && step.chunk.virtual_stage == 0;
            const bool last = shape.rank + 1 == shape.ranks && step.chunk.virtual_stage + 1 == shape.virtual_stages;
            if (step.kind == Kind::forward) {
                EXPECT_EQ((there[{TransferKind::receive_forward, step.chunk}]), first ? 0 : 1) << text(step.chunk);
            }
            if (step.kind == Kind::backward) {
                EXPECT_EQ((there[{TransferKind::receive_backward, step.chunk}]), last ? 0 : 1) << text(step.chunk);
            }
        }
    });
}

}  // namespace
}  // namespace stowage::program
