#include "profiler/cupti/activity.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

using namespace std::chrono_literals;

TEST(LastTime, IsTheLatestOfAllKinds) {
    Recording recording;
    EXPECT_EQ(last_time(recording), 0ns);
    recording.activities.emplace_back().end = 10ns;
    recording.calls.emplace_back().end = 12ns;
    recording.marks.emplace_back().time = 11ns;
    EXPECT_EQ(last_time(recording), 12ns);
    recording.ranges.emplace_back().end = kStillOpen;  // has no end yet
    EXPECT_EQ(last_time(recording), 12ns);
    recording.allocations.emplace_back().time = 13ns;
    EXPECT_EQ(last_time(recording), 13ns);
    recording.pools.emplace_back().time = 14ns;
    EXPECT_EQ(last_time(recording), 14ns);
    recording.waits.emplace_back().end = 15ns;
    EXPECT_EQ(last_time(recording), 15ns);
}

TEST(Doubts, AreNoneOfAnOrdinaryRecording) {
    Recording recording;
    recording.buffers = 1;
    recording.activities.emplace_back().end = 5s;
    recording.last_wait = 5s + 100ms;  // a wait's record takes a while
    recording.missing_buffers = 2;     // threads go on filling theirs
    EXPECT_TRUE(doubts_about(recording).empty());
}

TEST(Doubts, SayHowManyRecordsWereDroppedAndWhere) {
    Recording recording;
    recording.buffers = 1;
    recording.dropped = 5;
    recording.drops = {{kNotApplicable, 0, 2}, {1, 7, 3}};
    ASSERT_EQ(doubts_about(recording).size(), 1U);
    EXPECT_EQ(
        doubts_about(recording)[0],
        "5 records were dropped (context 1, stream 7: 3): the host had no memory for them; record fewer kinds, or a "
        "shorter time");
}

TEST(Doubts, SayHowManyRecordsHaveNoTimes) {
    Recording recording;
    recording.buffers = 1;
    recording.untimed = 3;
    ASSERT_EQ(doubts_about(recording).size(), 1U);
    EXPECT_EQ(doubts_about(recording)[0],
              "3 records are without times: the device was not idle when recording stopped, or had no memory left for "
              "CUPTI; wait for it before stopping, leave some memory free");
}

constexpr const char* kWho =
    "another profiler in the process has taken CUPTI's buffers over: torch.profiler does; do not start it under "
    "stowage";

TEST(Doubts, KnowBuffersThatAreNotOurs) {
    Recording recording;
    recording.buffers = 4;
    recording.foreign_buffers = 1;
    EXPECT_EQ(doubts_about(recording),
              std::vector<std::string>{std::string("1 buffers came that are not ours: ") + kWho});
}

TEST(Doubts, KnowThatNothingCame) {
    Recording recording;
    recording.missing_buffers = 1;  // asked for, and never written to
    EXPECT_TRUE(doubts_about(recording).empty());
    recording.last_wait = 1s;
    EXPECT_EQ(doubts_about(recording),
              std::vector<std::string>{std::string("CUPTI delivered nothing, though the device was used: ") + kWho});
}

// The last record at 5 s, the last wait at 17 s.
TEST(Doubts, KnowThatRecordsStoppedComing) {
    Recording recording;
    recording.buffers = 9;
    recording.activities.emplace_back().end = 5s;
    recording.last_wait = 17s;
    EXPECT_EQ(doubts_about(recording),
              std::vector<std::string>{
                  std::string("the last record is 12 s older than the last wait for the device: ") + kWho});
}

}  // namespace
}  // namespace stowage::profiler
