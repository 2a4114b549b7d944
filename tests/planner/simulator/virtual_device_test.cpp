// One GPU in virtual time, piece by piece. Times are nanoseconds; every expected one is derived beside it.

#include "planner/simulator/virtual_device.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "scenarios/types/error.hpp"

namespace stowage::simulator {
namespace {

using types::KernelClass;

/// Copies slow a gemm by 5 % (D2H), 10 % (H2D) or 25 % (both), attention by nothing; both directions at once keep 0.92
/// and 0.81 of their rates.
types::CopyEngines engines() {
    types::CopyEngines engines;
    engines.duplex_device_to_host = 0.92;
    engines.duplex_host_to_device = 0.81;
    engines.slowdown[static_cast<std::size_t>(KernelClass::gemm)] = {0.05, 0.10, 0.25};
    return engines;
}

/// A device whose finished pieces are kept.
class Device {
public:
    explicit Device(bool interference = true) : device(std::make_unique<VirtualDevice>(engines(), interference)) {
        device->trace_into(&done);
    }
    void kernel(Tick length, Tick issued, std::uint64_t tag, Stream stream = Stream::main,
                KernelClass kind = KernelClass::gemm) {
        device->compute(stream, kind, length, issued, tag);
    }
    void copy(Direction direction, Tick length, Tick issued, std::uint64_t tag) {
        const Stream stream = direction == Direction::device_to_host ? Stream::d2h : Stream::h2d;
        device->copy(stream, direction, length, length, issued, tag);
    }
    [[nodiscard]] FinishedWork piece(std::uint64_t tag) const {
        for (const FinishedWork& work : done)
            if (work.tag == tag) return work;
        return {0, Stream::main, -1, -1};
    }
    VirtualDevice* operator->() const { return device.get(); }

    std::unique_ptr<VirtualDevice> device;
    std::vector<FinishedWork> done;
};

constexpr auto kOut = Direction::device_to_host;
constexpr auto kBack = Direction::host_to_device;

// ------------------------------------------------------------------------------------------------------------- streams

TEST(VirtualDevice, RunsALonePieceForExactlyItsLength) {
    for (const Tick length : {Tick{1}, Tick{2}, Tick{999}, Tick{1'000'003}, Tick{3'600'000'000'000}}) {
        Device device;
        device.kernel(length, 7, 1);
        ASSERT_TRUE(device->drain_all());
        EXPECT_EQ(device.piece(1).start, 7);
        EXPECT_EQ(device.piece(1).end, 7 + length);
        EXPECT_EQ(device->now(), 7 + length);
    }
}

TEST(VirtualDevice, RunsALoneCopyForExactlyItsLength) {
    Device device;
    device.copy(kOut, 20'900, 0, 1);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 20'900);
    EXPECT_EQ(device->counters().copied[0], 20'900);
    EXPECT_EQ(device->counters().copy_busy[0], device->counters().copy_alone[0]);
}

TEST(VirtualDevice, OverlapsTwoStreamsToTheLongerOne) {
    Device device(false);
    device.kernel(100, 0, 1);
    device.copy(kOut, 70, 0, 2);
    device.kernel(40, 0, 3, Stream::communication);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->now(), 100);  // max(100, 70, 40), not 210
    EXPECT_EQ(device.piece(2).end, 70);
    EXPECT_EQ(device.piece(3).end, 40);
}

TEST(VirtualDevice, RunsAStreamFirstInFirstOut) {
    Device device;
    device.kernel(30, 0, 1);
    device.kernel(1, 0, 2);
    device.kernel(20, 0, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 30);
    EXPECT_EQ(device.piece(2).start, 30);
    EXPECT_EQ(device.piece(3).start, 31);
    EXPECT_EQ(device->now(), 51);
}

TEST(VirtualDevice, HoldsAStreamUntilTheEventOfAnother) {
    Device device(false);
    device.kernel(50, 0, 1);
    const EventId reached = device->record(Stream::main, 0);
    device.kernel(50, 0, 2);
    device->wait(Stream::d2h, reached, 0);
    device.copy(kOut, 10, 0, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(3).start, 50);  // when the first kernel is done, not the second
    EXPECT_EQ(device->now(), 100);
}

TEST(VirtualDevice, CompletesAnEventWhenItsStreamGetsThereAndNotBefore) {
    Device device;
    device.kernel(50, 0, 1);
    const EventId event = device->record(Stream::main, 10);
    ASSERT_TRUE(device->advance_to(49));
    EXPECT_FALSE(device->completed(event));
    ASSERT_TRUE(device->advance_to(50));
    EXPECT_TRUE(device->completed(event));
    EXPECT_EQ(device->now(), 50);
}

TEST(VirtualDevice, CompletesAnEventOnAnIdleStreamAtItsIssue) {
    Device device;
    const EventId event = device->record(Stream::h2d, 30);
    ASSERT_TRUE(device->advance_to(29));
    EXPECT_FALSE(device->completed(event));
    ASSERT_TRUE(device->advance_to(30));
    EXPECT_TRUE(device->completed(event));
}

TEST(VirtualDevice, PassesEventsAlongAChainOfStreamsInOneMoment) {
    // main -> d2h -> h2d -> communication: each waits for an event of the one before and records its own.
    Device device;
    device.kernel(25, 0, 1);
    EventId event = device->record(Stream::main, 0);
    for (const Stream stream : {Stream::h2d, Stream::d2h, Stream::communication}) {
        device->wait(stream, event, 0);
        event = device->record(stream, 0);
    }
    device->wait(Stream::main, event, 0);
    device.kernel(5, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(2).start, 25);
}

TEST(VirtualDevice, ForgetsEventsAsComplete) {
    Device device;
    const EventId event = device->record(Stream::main, 0);
    ASSERT_TRUE(device->drain_all());
    device->forget_events();
    EXPECT_TRUE(device->completed(event));
    const EventId later = device->record(Stream::main, 10);
    EXPECT_FALSE(device->completed(later));
}

TEST(VirtualDevice, RefusesToForgetEventsWhileWorkIsPending) {
    Device device;
    device.kernel(5, 0, 1);
    EXPECT_THROW(device->forget_events(), std::logic_error);
}

TEST(VirtualDevice, RunsWorkWithoutLengthInNoTime) {
    Device device;
    device.kernel(0, 3, 1);
    device.kernel(0, 3, 2);
    device.kernel(4, 3, 3);
    device.kernel(0, 3, 4);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 3);
    EXPECT_EQ(device.piece(2).start, 3);
    EXPECT_EQ(device.piece(3).end, 7);
    EXPECT_EQ(device.piece(4).start, 7);
    EXPECT_EQ(device.piece(4).end, 7);
    EXPECT_TRUE(device->idle());
}

TEST(VirtualDevice, SettlesTiesInStreamOrder) {
    Device device(false);
    device->copy(Stream::h2d, kBack, 1, 10, 0, 3);
    device->communicate(Stream::communication, 10, 0, 4);
    device.kernel(10, 0, 1);
    device->copy(Stream::d2h, kOut, 1, 10, 0, 2);
    ASSERT_TRUE(device->drain_all());
    ASSERT_EQ(device.done.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(device.done[i].tag, i + 1);
}

// --------------------------------------------------------------------------------------------------------------- host

TEST(VirtualDevice, StartsNothingBeforeItWasIssued) {
    Device device;
    device.kernel(5, 10, 1);
    device.kernel(5, 12, 2);
    device.kernel(5, 50, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).start, 10);
    EXPECT_EQ(device.piece(2).start, 15);
    EXPECT_EQ(device.piece(3).start, 50);
    EXPECT_EQ(device->counters().host_bound, 10 + 30);  // 0 to 10 and 20 to 50
}

TEST(VirtualDevice, CountsTheHostOnlyWhileNothingElseRuns) {
    Device device(false);
    device.kernel(5, 0, 1);
    device.copy(kOut, 20, 0, 2);
    device.kernel(5, 30, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->counters().host_bound, 10);  // 20 to 30: from 5 to 20 the copy runs
}

TEST(VirtualDevice, RefusesWorkIssuedInItsPast) {
    Device device;
    device.kernel(5, 0, 1);
    ASSERT_TRUE(device->advance_to(3));
    EXPECT_THROW(device.kernel(5, 2, 2), std::logic_error);
}

TEST(VirtualDevice, AdvancesOneMomentAtATime) {
    Device device(false);
    device.kernel(10, 0, 1);
    device.copy(kOut, 4, 0, 2);
    ASSERT_TRUE(device->advance_one());
    EXPECT_EQ(device->now(), 4);
    EXPECT_EQ(device->pending(Stream::d2h), 0U);
    EXPECT_EQ(device->pending(Stream::main), 1U);
    ASSERT_TRUE(device->advance_one());
    EXPECT_EQ(device->now(), 10);
    EXPECT_TRUE(device->idle());
}

TEST(VirtualDevice, CountsWorkAndNoEventsInALaunchQueue) {
    Device device(false);
    device.kernel(10, 0, 1);
    device.kernel(10, 0, 2);
    const EventId event = device->record(Stream::main, 0);
    device->wait(Stream::main, event, 0);
    EXPECT_EQ(device->pending(Stream::main), 4U);
    EXPECT_EQ(device->launches(Stream::main), 2U);
    ASSERT_TRUE(device->advance_to(10));
    EXPECT_EQ(device->launches(Stream::main), 1U);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->launches(Stream::main), 0U);
}

TEST(VirtualDevice, DrainsOneStreamAndLeavesTheOthersRunning) {
    Device device(false);
    device.kernel(10, 0, 1);
    device.copy(kOut, 40, 0, 2);
    ASSERT_TRUE(device->drain(Stream::main));
    EXPECT_EQ(device->now(), 10);
    EXPECT_EQ(device->pending(Stream::d2h), 1U);
}

// -------------------------------------------------------------------------------------------------------- interference

TEST(VirtualDevice, SlowsAKernelOnlyWhileTheCopyRuns) {
    // 42 us beside the copy do 42 / 1.05 = 40 us of the kernel, the other 60 us run alone.
    Device device;
    device.kernel(100'000, 0, 1);
    device.copy(kOut, 42'000, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(2).end, 42'000);
    EXPECT_EQ(device.piece(1).end, 102'000);
}

TEST(VirtualDevice, SlowsAKernelByTheDirectionsThatRun) {
    struct Row {
        bool out, back;
        Tick end;
    };
    for (const Row row :
         {Row{false, false, 100'000}, Row{true, false, 105'000}, Row{false, true, 110'000}, Row{true, true, 125'000}}) {
        Device device;
        device.kernel(100'000, 0, 1);
        if (row.out) device.copy(kOut, 1'000'000, 0, 2);
        if (row.back) device.copy(kBack, 1'000'000, 0, 3);
        ASSERT_TRUE(device->drain_all());
        EXPECT_EQ(device.piece(1).end, row.end);
    }
}

TEST(VirtualDevice, LeavesOtherClassesAndCommunicationAlone) {
    Device device;
    device.kernel(100'000, 0, 1, Stream::main, KernelClass::attention);
    device->communicate(Stream::communication, 100'000, 0, 2);
    device.copy(kOut, 1'000'000, 0, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 100'000);
    EXPECT_EQ(device.piece(2).end, 100'000);
}

TEST(VirtualDevice, KeepsKernelsAndDirectionsApartWithoutInterference) {
    Device device(false);
    device.kernel(100'000, 0, 1);
    device.copy(kOut, 60'000, 0, 2);
    device.copy(kBack, 70'000, 0, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 100'000);
    EXPECT_EQ(device.piece(2).end, 60'000);
    EXPECT_EQ(device.piece(3).end, 70'000);
}

TEST(VirtualDevice, RunsCopiesOfADirectionOneAfterAnother) {
    // Ready at the same moment: the main stream's was issued first.
    for (const bool interference : {false, true}) {
        Device device(interference);
        device->copy(Stream::main, kOut, 1, 30'000, 0, 1);
        device->copy(Stream::d2h, kOut, 1, 10'000, 5, 2);
        ASSERT_TRUE(device->drain_all());
        EXPECT_EQ(device.piece(1).end, 30'000);
        EXPECT_EQ(device.piece(2).start, 30'000);
        EXPECT_EQ(device.piece(2).end, 40'000);
        EXPECT_EQ(device->counters().copy_busy[0], 40'000);
        EXPECT_EQ(device->counters().copy_alone[0], 40'000);
    }
}

TEST(VirtualDevice, KeepsTheEngineWithAStreamThatHasACopyReady) {
    // Measured on one H200 (docs/measurements/2026-11-29-h200-cuda-graphs.md): a lane of twelve pieces, and two pieces
    // of another stream ready 1.8 ms later: the two run after the last of the twelve, though each of the twelve waits
    // for an event that has been reached.
    Device device;
    const EventId reached = device->record(Stream::main, 0);
    for (int piece = 0; piece < 12; ++piece) {
        device->wait(Stream::d2h, reached, 0);
        device.copy(kOut, 1'217'000, 0, 1);
    }
    for (int piece = 0; piece < 2; ++piece) device->copy(Stream::graph_d2h, kOut, 1, 1'217'000, 1'800'000, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(2).start, 12 * 1'217'000);
    EXPECT_EQ(device->now(), 14 * 1'217'000);
}

TEST(VirtualDevice, TurnsToAnotherStreamWhereTheFirstHasToWait) {
    // The second copy of d2h is ready at 50, when the engine has gone to the graph's branch, which runs to its own end.
    Device device;
    device.kernel(50, 0, 9, Stream::main, KernelClass::memory_bound);
    const EventId made = device->record(Stream::main, 0);
    device.copy(kOut, 20, 0, 1);
    device->wait(Stream::d2h, made, 0);
    device.copy(kOut, 20, 0, 2);
    for (std::uint64_t piece = 3; piece < 6; ++piece) device->copy(Stream::graph_d2h, kOut, 1, 40, 10, piece);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 20);
    EXPECT_EQ(device.piece(3).start, 20);
    EXPECT_EQ(device.piece(5).end, 140);
    EXPECT_EQ(device.piece(2).start, 140);
}

TEST(VirtualDevice, CountsAMainStreamThatWaitsForTheEngineAsExposed) {
    Device device(false);
    device.copy(kBack, 25, 0, 1);
    device->copy(Stream::main, kBack, 1, 30, 5, 2);
    device.kernel(10, 5, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->counters().exposed_copy, 50);  // 5 to 25 behind the other copy, 25 to 55 its own
}

TEST(VirtualDevice, GivesEachDirectionItsDuplexShare) {
    // Out 92 us at 0.92 and back 81 us at 0.81 both take 100 us beside each other.
    Device device;
    device.copy(kOut, 92'000, 0, 1);
    device.copy(kBack, 81'000, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 100'000);
    EXPECT_EQ(device.piece(2).end, 100'000);
}

TEST(VirtualDevice, GivesTheWholeEngineBackWhenTheOtherDirectionEnds) {
    // Out: 46 / 0.92 = 50 us. Back has then done 0.81 x 50 = 40.5 of 81 us and runs the other 40.5 alone: 90.5 us.
    Device device;
    device.copy(kOut, 46'000, 0, 1);
    device.copy(kBack, 81'000, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 50'000);
    EXPECT_EQ(device.piece(2).end, 90'500);
}

// ------------------------------------------------------------------------------------------------------------ counters

TEST(VirtualDevice, CountsCopyTimeThatTheMainStreamWaitsFor) {
    Device device(false);
    device.copy(kBack, 100, 0, 1);
    const EventId loaded = device->record(Stream::h2d, 0);
    device.kernel(40, 0, 2);
    device->wait(Stream::main, loaded, 0);
    device.kernel(10, 0, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(3).start, 100);
    EXPECT_EQ(device->counters().exposed_copy, 60);
    EXPECT_EQ(device->counters().host_bound, 0);
    EXPECT_EQ(device->counters().busy[program::index(Stream::main)], 50);
}

TEST(VirtualDevice, CountsACopyOnTheMainStreamAsExposed) {
    Device device(false);
    device->copy(Stream::main, kBack, 1, 30, 0, 1);
    device.kernel(10, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->counters().exposed_copy, 30);
}

TEST(VirtualDevice, CountsTheCopyThatTheHostWaitsForAsExposed) {
    Device device(false);
    device.kernel(10, 0, 1);
    device.copy(kOut, 35, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->counters().exposed_copy, 25);  // 10 to 35, nothing else left
}

TEST(VirtualDevice, CountsNoWaitForOtherStreamsAsExposedCopy) {
    Device device(false);
    device->communicate(Stream::communication, 100, 0, 1);
    const EventId reduced = device->record(Stream::communication, 0);
    device->wait(Stream::main, reduced, 0);
    device.kernel(10, 0, 2);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device->counters().exposed_copy, 0);
}

// ----------------------------------------------------------------------------------------------------------- transfers

TEST(VirtualDevice, StartsATransferWhenBothSidesReachedIt) {
    PeerChannel channel;
    Device first, second;
    first.kernel(100, 0, 1);
    first->transfer(Stream::main, channel, 0, 20, 0, 2);
    second.kernel(150, 0, 1);
    second->transfer(Stream::main, channel, 1, 20, 0, 2);
    EXPECT_FALSE(first->drain_all());  // the partner has not got there yet
    EXPECT_EQ(first->now(), 100);
    ASSERT_TRUE(second->drain_all());
    ASSERT_TRUE(first->drain_all());
    EXPECT_EQ(first.piece(2).end, 170);
    EXPECT_EQ(second.piece(2).end, 170);
    EXPECT_EQ(second.piece(2).start, 150);
    EXPECT_TRUE(channel.balanced());
}

TEST(VirtualDevice, MatchesTheCallsOfAChannelInOrder) {
    PeerChannel channel;
    Device first, second;
    for (std::uint64_t i = 0; i < 3; ++i) {
        first.kernel(10, 0, 10 + i);
        first->transfer(Stream::main, channel, 0, 5, 0, i);
        second.kernel(30, 0, 10 + i);
        second->transfer(Stream::main, channel, 1, 5, 0, i);
    }
    bool done = false;
    for (int round = 0; round < 10 && !done; ++round) {
        const bool one = first->drain_all();
        const bool other = second->drain_all();
        done = one && other;
    }
    ASSERT_TRUE(done);
    // The slower side sets the pace: 35 a call.
    for (std::uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(first.piece(i).end, 35 * (static_cast<Tick>(i) + 1));
        EXPECT_EQ(second.piece(i).end, first.piece(i).end);
    }
}

TEST(VirtualDevice, GoesOnWithOtherStreamsOnceTheTransferIsSettled) {
    PeerChannel channel;
    Device first, second;
    first->transfer(Stream::send_forward, channel, 0, 20, 0, 1);
    first.kernel(50, 0, 2);
    EXPECT_FALSE(first->advance_to(10));
    second->transfer(Stream::receive_forward, channel, 1, 20, 30, 1);
    ASSERT_TRUE(second->drain_all());
    ASSERT_TRUE(first->drain_all());
    EXPECT_EQ(first.piece(1).end, 50);  // the partner came at 30
    EXPECT_EQ(first.piece(2).end, 50);  // and held nothing up
}

// --------------------------------------------------------------------------------------------------------- determinism

TEST(VirtualDevice, GivesTheSameTimesWhetherTimeIsAdvancedInStepsOrAtOnce) {
    auto run = [](bool in_steps) {
        Device device;
        for (std::uint64_t i = 0; i < 40; ++i) {
            const auto step = static_cast<Tick>(i);
            if (in_steps) {
                EXPECT_TRUE(device->advance_to(step * 400));
            }
            device.kernel(1'000 + 37 * step % 500, step * 400, 3 * i);
            device.copy(kOut, 900 + 91 * step % 700, step * 400, 3 * i + 1);
            device.copy(kBack, 1'100 + 53 * step % 900, step * 400, 3 * i + 2);
        }
        EXPECT_TRUE(device->drain_all());
        std::vector<Tick> ends;
        for (std::uint64_t tag = 0; tag < 120; ++tag) ends.push_back(device.piece(tag).end);
        return ends;
    };
    EXPECT_EQ(run(false), run(true));
}

// ------------------------------------------------------------------------------------- kernels of different streams

// The gather is asked for at 10 and gets in when the first GEMM ends at 1000; the second GEMM, ready only then,
// follows.
TEST(VirtualDevice, LetsNoKernelInBesideAGemm) {
    Device device;
    device.kernel(1000, 0, 1);
    device.kernel(500, 5, 2);
    device.kernel(100, 10, 3, Stream::d2h, KernelClass::memory_bound);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(3).start, 1000);
    EXPECT_EQ(device.piece(3).end, 1100);
    EXPECT_EQ(device.piece(2).start, 1100);
    EXPECT_EQ(device.piece(2).end, 1600);
}

// From 200 on each runs at half its speed: the gather needs 200; attention has then done 300 of 1000.
TEST(VirtualDevice, SharesTheDeviceBetweenKernelsThatLeaveRoom) {
    Device device;
    device.kernel(1000, 0, 1, Stream::main, KernelClass::attention);
    device.kernel(100, 200, 2, Stream::d2h, KernelClass::memory_bound);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(2).end, 400);
    EXPECT_EQ(device.piece(1).end, 1100);
}

// Both are ready when attention ends at 100; the gather was issued before the GEMM.
TEST(VirtualDevice, StartsTheFirstIssuedOfTwoKernelsThatAreReadyAtOnce) {
    Device device;
    device.kernel(100, 0, 1, Stream::main, KernelClass::attention);
    device->wait(Stream::d2h, device->record(Stream::main, 4), 4);
    device.kernel(50, 5, 2, Stream::d2h, KernelClass::memory_bound);
    device.kernel(200, 6, 3);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(2).start, 100);
    EXPECT_EQ(device.piece(3).start, 150);
}

TEST(VirtualDevice, LetsKernelsIgnoreEachOtherWithoutInterference) {
    Device device(false);
    device.kernel(1000, 0, 1);
    device.kernel(100, 10, 2, Stream::d2h, KernelClass::memory_bound);
    ASSERT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 1000);
    EXPECT_EQ(device.piece(2).end, 110);
}

// A piece's rest is counted in 2^-20 ns: more than 2^42 ns, 73 minutes, does not fit 64 bits.
TEST(VirtualDevice, RefusesWorkThatTakesHours) {
    constexpr Tick kMinute = 60'000'000'000;
    Device device;
    device.kernel(73 * kMinute, 0, 1);
    EXPECT_TRUE(device->drain_all());
    EXPECT_EQ(device.piece(1).end, 73 * kMinute);
    device.kernel(74 * kMinute, 73 * kMinute, 2);
    EXPECT_THROW(device->drain_all(), types::UnsupportedError);
    EXPECT_THROW(device.kernel(1, (Tick{1} << 60) + 1, 3), types::UnsupportedError);
}

}  // namespace
}  // namespace stowage::simulator
