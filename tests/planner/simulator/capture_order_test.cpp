#include "planner/simulator/capture_order.hpp"

#include <gtest/gtest.h>

namespace stowage::simulator {
namespace {

using program::Stream;

TEST(CaptureOrder, IsBehindWhatAStreamWaitedForAndNotBehindWhatCameLater) {
    CaptureOrder order;
    order.begin();
    order.work(Stream::main);
    order.wait(Stream::d2h, Stream::main);
    order.work(Stream::d2h);
    const auto early = order.mark(Stream::d2h);
    ASSERT_TRUE(early);
    EXPECT_FALSE(order.is_behind(Stream::main, *early));
    order.wait(Stream::main, Stream::d2h);
    EXPECT_TRUE(order.is_behind(Stream::main, *early));
    const auto late = order.mark(Stream::d2h);  // a node of its own, behind which main is only after another wait
    EXPECT_FALSE(order.is_behind(Stream::main, *late));
}

TEST(CaptureOrder, CarriesOverThroughAThirdStreamAndThroughEvents) {
    CaptureOrder order;
    order.begin();
    order.work(Stream::d2h);
    const auto mark = order.mark(Stream::d2h);
    order.record(7, Stream::d2h);
    order.wait_event(Stream::h2d, 7);
    order.wait(Stream::main, Stream::h2d);
    EXPECT_TRUE(order.is_behind(Stream::main, *mark));
    order.wait_event(Stream::main, 8);  // recorded before the capture: orders nothing in it
}

TEST(CaptureOrder, MarksNothingOnAStreamThatHasNothing) {
    CaptureOrder order;
    order.begin();
    EXPECT_FALSE(order.mark(Stream::main));
    order.work(Stream::main);
    EXPECT_TRUE(order.mark(Stream::main));
    order.begin();
    EXPECT_FALSE(order.mark(Stream::main));
}

}  // namespace
}  // namespace stowage::simulator
