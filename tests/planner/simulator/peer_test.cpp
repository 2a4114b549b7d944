// The measured peer against its prediction: step time, peak of allocated memory, and reserved memory for the record.
// What was measured: tests/support/peer_stage.cpp. What explains what: docs/measurements/2026-11-29-peer-prediction.md.

#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/program/lowering.hpp"
#include "planner/simulator/simulator.hpp"
#include "tests/support/peer_stage.hpp"
#include "tests/support/peer_stage_run.hpp"

namespace stowage::simulator {
namespace {

using testing::PeerRow;

struct Predicted {
    program::Lowered lowered;
    Prediction run;

    [[nodiscard]] double step_ms() const { return static_cast<double>(run.step_time.count()) / 1e6; }
    [[nodiscard]] const StageResult& steady() const { return run.ranks[0].steady; }
    [[nodiscard]] Bytes table() const {
        Bytes sum;
        for (const Bytes bytes : lowered.counts.table) sum += bytes;
        return sum;
    }
    [[nodiscard]] Bytes copied() const {
        Bytes sum;
        for (const Bytes bytes : lowered.counts.bytes) sum += bytes;
        return sum;
    }
};

Predicted predict(const PeerRow& row, double gemm_time) {
    const types::Hardware hardware = testing::peer_hardware();
    const types::ParallelLayout layout;
    const program::Durations durations(hardware, layout);
    types::OffloadChoice choice;
    choice.modules = row.modules;
    const layers::StageLayers stage = testing::peer_stage(row.modules, gemm_time);
    Predicted predicted;
    predicted.lowered =
        program::lower(stage, testing::kPeerMicrobatches, choice, types::RuleSet::main_2026_08, durations);
    testing::run_as_the_peer(predicted.lowered.program, stage);
    predicted.run = simulate({&predicted.lowered.program}, hardware.node);
    return predicted;
}

/// The step at the clock that its own idling allows: its fixed point, reached in a few rounds since a step's idle share
/// changes by a fraction of what the clock does.
Predicted predict(const PeerRow& row) {
    Predicted predicted = predict(row, 1);
    for (int round = 0; round < 4; ++round) {
        const double idle = static_cast<double>(predicted.steady().exposed_copy.count()) / 1e6 / predicted.step_ms();
        predicted = predict(row, testing::gemm_time_at(1 - idle));
    }
    return predicted;
}

double percent(double predicted, double measured) { return 100 * (predicted / measured - 1); }
double percent(Bytes predicted, Bytes measured) {
    return percent(static_cast<double>(predicted.count), static_cast<double>(measured.count));
}

class Peer : public ::testing::TestWithParam<PeerRow> {};

TEST_P(Peer, ManagerMovesTheBytesOfItsTable) {
    const PeerRow& row = GetParam();
    const Predicted predicted = predict(row);
    EXPECT_EQ(predicted.table(), row.table);
    // Every microbatch keeps the last layer: four times the table is copied in a step, each way.
    for (const Bytes copied : predicted.steady().copied) EXPECT_EQ(copied.count, 4 * row.table.count);
    EXPECT_EQ(predicted.copied().count, 4 * row.table.count);
    EXPECT_EQ(predicted.lowered.counts.steady_inline_reads, 0);
    EXPECT_FALSE(predicted.lowered.released_while_saved);
}

// At the one clock that the measured compute time was taken at. One row was measured on one machine only.
TEST_P(Peer, StepTakesWhatTwoMachinesTookOnAverage) {
    const PeerRow& row = GetParam();
    if (row.step_ms.size() < 2) GTEST_SKIP() << "measured on one machine, which it misses by 4.3 %";
    EXPECT_LE(std::abs(percent(predict(row, 1).step_ms(), row.mean_step_ms())), 1.5);
}

// The machine that measured every row computes faster the longer its main stream waits for copies.
TEST_P(Peer, StepTakesWhatTheFirstMachineTookAtTheClockThatIdlingAllows) {
    const PeerRow& row = GetParam();
    EXPECT_LE(std::abs(percent(predict(row).step_ms(), row.step_ms.front())), 1.5);
}

// To a block of 512 bytes.
TEST_P(Peer, AllocatedMemoryPeaksWhereItWasMeasured) {
    const PeerRow& row = GetParam();
    EXPECT_LE(std::abs(predict(row).steady().peak_allocated.count - row.peak_allocated.count), 512);
}

// How far the host is ahead of the device decides what is still held for copies, and two programs of one peer differ by
// as much: docs/measurements/2026-11-29-peer-prediction.md.
TEST_P(Peer, ReservedMemoryPeaksNearWhereItWasMeasured) {
    const PeerRow& row = GetParam();
    if (!row.peak_reserved) GTEST_SKIP() << "not measured";
    EXPECT_LE(std::abs(percent(predict(row, 1).steady().peak_reserved, *row.peak_reserved)), 4);
}

PeerRow row_of(std::string_view name) {
    for (const PeerRow& row : testing::peer_rows())
        if (row.name == name) return row;
    throw std::logic_error("no such row");
}

/// Reserved bytes over those with nothing offloaded, in GB.
double reserved_over_nothing(Bytes reserved, Bytes nothing) {
    return static_cast<double>(reserved.count - nothing.count) / 1e9;
}

// Measured: +1.98 GB with core_attn and +2.55 with all five, while allocated falls by 0.70 and 1.61. A second program
// that drives the same manager through the same stack grew by 1.71 and 3.31: half a gigabyte is a matter of the host's
// pace (docs/measurements/2026-11-29-peer-prediction.md).
TEST(PeerReserved, GrowsByWhatItGrewWhileAllocatedFalls) {
    const PeerRow nothing = row_of("nothing");
    const StageResult without = predict(nothing, 1).steady();
    for (const std::string_view name : {"core_attn", "all five"}) {
        const PeerRow row = row_of(name);
        const StageResult with = predict(row, 1).steady();
        const double measured = reserved_over_nothing(*row.peak_reserved, *nothing.peak_reserved);
        const double grown = reserved_over_nothing(with.peak_reserved, without.peak_reserved);
        EXPECT_LE(std::abs(percent(grown, measured)), name == "core_attn" ? 10 : 13) << name;
        const double fell = reserved_over_nothing(row.peak_allocated, nothing.peak_allocated);
        EXPECT_LE(std::abs(percent(reserved_over_nothing(with.peak_allocated, without.peak_allocated), fell)), 0.1)
            << name;
    }
}

// Where no copy holds memory back no clock has a say: docs/measurements/2026-11-29-h200-peer-memory.json.
TEST(PeerReserved, IsToTheByteWhatTheDescribedProgramReservedWithNothingOffloaded) {
    const Predicted predicted = predict(row_of("nothing"), 1);
    EXPECT_EQ(predicted.run.ranks[0].setup.peak_reserved, Bytes{8122269696});
    EXPECT_EQ(predicted.run.ranks[0].record.peak_reserved, Bytes{14938013696});
    EXPECT_EQ(predicted.steady().peak_reserved, Bytes{14938013696});
}

INSTANTIATE_TEST_SUITE_P(Rows, Peer, ::testing::ValuesIn(testing::peer_rows()), [](const auto& row) {
    std::string name = row.param.name;
    for (char& letter : name)
        if (letter == ' ') letter = '_';
    return name;
});

TEST(PeerTable, ComparesPredictionAndMeasurement) {
    constexpr std::string_view kHeading = "{:<32}{:>10}{:>8}{:>8}{:>10}{:>8}{:>8}{:>16}{:>16}{:>8}{:>16}{:>16}\n";
    constexpr std::string_view kRow =
        "{:<32}{:>10.1f}{:>8.1f}{:>+8.2f}{:>10.1f}{:>8.1f}{:>+8.2f}{:>16}{:>16}{:>+8.3f}{:>16}{:>16}\n";
    fmt::print(kHeading, "offloaded", "one clock", "mean", "%", "own clock", "first", "%", "peak allocated", "measured",
               "%", "peak reserved", "measured");
    for (const PeerRow& row : testing::peer_rows()) {
        const double one_clock = predict(row, 1).step_ms();
        const Predicted predicted = predict(row);
        const StageResult& steady = predicted.steady();
        fmt::print(kRow, row.name, one_clock, row.mean_step_ms(), percent(one_clock, row.mean_step_ms()),
                   predicted.step_ms(), row.step_ms.front(), percent(predicted.step_ms(), row.step_ms.front()),
                   steady.peak_allocated.count, row.peak_allocated.count,
                   percent(steady.peak_allocated, row.peak_allocated), predict(row, 1).steady().peak_reserved.count,
                   row.peak_reserved ? std::to_string(row.peak_reserved->count) : std::string("-"));
        EXPECT_GE(steady.peak_reserved, steady.peak_allocated);
    }
}

}  // namespace
}  // namespace stowage::simulator
