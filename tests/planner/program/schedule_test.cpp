#include "planner/program/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace stowage::program {
namespace {

using Kind = ScheduleStep::Kind;

/// F: forward, B: backward, > to the next stage, < to the previous one; sent before received, "-" for none.
std::string text(const std::vector<ScheduleStep>& steps) {
    std::string words;
    for (const ScheduleStep& step : steps) {
        const std::string number = std::to_string(step.microbatch);
        const std::string received = std::to_string(step.received);
        if (!words.empty()) words += ' ';
        switch (step.kind) {
            case Kind::forward: words += "F" + number; break;
            case Kind::backward: words += "B" + number; break;
            case Kind::receive_forward: words += "<(-," + number + ")"; break;
            case Kind::send_forward: words += ">(" + number + ",-)"; break;
            case Kind::send_forward_receive_backward: words += ">(" + number + "," + received + ")"; break;
            case Kind::receive_backward: words += ">(-," + number + ")"; break;
            case Kind::send_backward: words += "<(" + number + ",-)"; break;
            case Kind::send_backward_receive_forward: words += "<(" + number + "," + received + ")"; break;
        }
    }
    return words;
}

/// What crosses the border between two stages in one call: the forward that goes down, the backward that comes up.
struct Crossing {
    std::int64_t forward = -1;
    std::int64_t backward = -1;
    friend bool operator==(const Crossing&, const Crossing&) = default;
};

std::vector<Crossing> calls_with_next(const std::vector<ScheduleStep>& steps) {
    std::vector<Crossing> calls;
    for (const ScheduleStep& step : steps) {
        if (step.kind == Kind::send_forward) calls.push_back({step.microbatch, -1});
        if (step.kind == Kind::send_forward_receive_backward) calls.push_back({step.microbatch, step.received});
        if (step.kind == Kind::receive_backward) calls.push_back({-1, step.microbatch});
    }
    return calls;
}

std::vector<Crossing> calls_with_previous(const std::vector<ScheduleStep>& steps) {
    std::vector<Crossing> calls;
    for (const ScheduleStep& step : steps) {
        if (step.kind == Kind::receive_forward) calls.push_back({step.microbatch, -1});
        if (step.kind == Kind::send_backward_receive_forward) calls.push_back({step.received, step.microbatch});
        if (step.kind == Kind::send_backward) calls.push_back({-1, step.microbatch});
    }
    return calls;
}

std::vector<std::int64_t> microbatches_of(const std::vector<ScheduleStep>& steps, Kind kind) {
    std::vector<std::int64_t> found;
    for (const ScheduleStep& step : steps)
        if (step.kind == kind) found.push_back(step.microbatch);
    return found;
}

std::int64_t peak_in_flight(const std::vector<ScheduleStep>& steps) {
    std::int64_t now = 0;
    std::int64_t peak = 0;
    for (const ScheduleStep& step : steps) {
        now += step.kind == Kind::forward ? 1 : step.kind == Kind::backward ? -1 : 0;
        peak = std::max(peak, now);
    }
    return peak;
}

/// The position of the microbatch's own step of this kind.
std::ptrdiff_t place(const std::vector<ScheduleStep>& steps, Kind kind, std::int64_t microbatch) {
    return std::find_if(steps.begin(), steps.end(),
                        [&](const ScheduleStep& s) { return s.kind == kind && s.microbatch == microbatch; }) -
           steps.begin();
}

template <class Check>
void for_each_grid(Check check) {
    for (std::int64_t stages = 1; stages <= 7; ++stages)
        for (std::int64_t microbatches = 1; microbatches <= 12; ++microbatches) {
            SCOPED_TRACE("stages " + std::to_string(stages) + ", microbatches " + std::to_string(microbatches));
            check(stages, microbatches);
        }
}

TEST(Schedule, AlternatesForwardAndBackwardOnOneStageWithoutTransfers) {
    EXPECT_EQ(text(one_forward_one_backward(0, 1, 3)), "F0 B0 F1 B1 F2 B2");
}

// Two stages: the first runs one forward ahead, the last none.
TEST(Schedule, OrdersTwoStagesAndThreeMicrobatchesAsByHand) {
    EXPECT_EQ(text(one_forward_one_backward(0, 2, 3)), "F0 >(0,-) F1 >(1,0) B0 F2 >(2,1) B1 >(-,2) B2");
    EXPECT_EQ(text(one_forward_one_backward(1, 2, 3)), "<(-,0) F0 B0 <(0,1) F1 B1 <(1,2) F2 B2 <(2,-)");
}

// Fewer microbatches than stages: the first stage has all its forwards before the first backward comes back.
TEST(Schedule, HasNoSteadyPhaseWhenMicrobatchesRunOutInTheWarmUp) {
    EXPECT_EQ(text(one_forward_one_backward(0, 4, 2)), "F0 >(0,-) F1 >(1,-) >(-,0) B0 >(-,1) B1");
    EXPECT_EQ(text(one_forward_one_backward(2, 4, 2)), "<(-,0) F0 >(0,-) <(-,1) F1 >(1,0) B0 <(0,-) >(-,1) B1 <(1,-)");
    EXPECT_EQ(warmup_microbatches(0, 4, 2), 2);  // min(4 - 0 - 1, 2)
    EXPECT_EQ(warmup_microbatches(2, 4, 2), 1);  // min(4 - 2 - 1, 2)
}

TEST(Schedule, RunsEveryMicrobatchOnceForwardAndOnceBackwardInRisingOrder) {
    for_each_grid([](std::int64_t stages, std::int64_t microbatches) {
        for (std::int64_t rank = 0; rank < stages; ++rank) {
            const auto steps = one_forward_one_backward(rank, stages, microbatches);
            std::vector<std::int64_t> all(static_cast<std::size_t>(microbatches));
            for (std::int64_t i = 0; i < microbatches; ++i) all[static_cast<std::size_t>(i)] = i;
            EXPECT_EQ(microbatches_of(steps, Kind::forward), all);
            EXPECT_EQ(microbatches_of(steps, Kind::backward), all);
            for (const std::int64_t i : all) EXPECT_LT(place(steps, Kind::forward, i), place(steps, Kind::backward, i));
        }
    });
}

// Stage r of p waits for the p - r - 1 stages behind it, so it holds p - r microbatches if there are as many.
TEST(Schedule, HoldsAtMostTheStagesFromHereToTheEndOfMicrobatches) {
    for_each_grid([](std::int64_t stages, std::int64_t microbatches) {
        for (std::int64_t rank = 0; rank < stages; ++rank)
            EXPECT_EQ(peak_in_flight(one_forward_one_backward(rank, stages, microbatches)),
                      std::min(stages - rank, microbatches));
    });
}

// Each grouped call blocks until the neighbour makes the call that answers it, so the k-th calls must agree.
TEST(Schedule, MeetsEverySendWithTheNeighboursReceiveInTheSameCall) {
    for_each_grid([](std::int64_t stages, std::int64_t microbatches) {
        for (std::int64_t rank = 0; rank + 1 < stages; ++rank) {
            const auto here = calls_with_next(one_forward_one_backward(rank, stages, microbatches));
            EXPECT_EQ(here, calls_with_previous(one_forward_one_backward(rank + 1, stages, microbatches)));
            EXPECT_GE(std::ssize(here), microbatches);
        }
    });
}

TEST(Schedule, HasNoTransferBeyondTheEndsOfThePipeline) {
    for_each_grid([](std::int64_t stages, std::int64_t microbatches) {
        EXPECT_TRUE(calls_with_previous(one_forward_one_backward(0, stages, microbatches)).empty());
        EXPECT_TRUE(calls_with_next(one_forward_one_backward(stages - 1, stages, microbatches)).empty());
    });
}

}  // namespace
}  // namespace stowage::program
