#include "profiler/cupti/raw_events.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

TEST(MarkTest, TextAndBack) {
    const Mark mark{"core_attn", "forward", "attention", 3, 0, 1};
    EXPECT_EQ(text_of(mark), "stowage:module=core_attn;phase=forward;work=attention;layer=3;microbatch=0;chunk=1");
    EXPECT_EQ(mark_of(text_of(mark)), mark);
}

TEST(MarkTest, UnknownFieldsAreLeftOutAndPassedOver) {
    Mark mark;
    mark.module = "router";
    EXPECT_EQ(text_of(mark), "stowage:module=router");
    EXPECT_EQ(mark_of("stowage:module=router;colour=green"), mark);
    EXPECT_EQ(mark_of("stowage:module=router;layer=;microbatch=x7;;=;work"), mark);
    EXPECT_EQ(mark_of("stowage:"), Mark{});
}

TEST(MarkTest, OtherRangesAreNoMarks) {
    EXPECT_EQ(mark_of("forward"), std::nullopt);
    EXPECT_EQ(mark_of(""), std::nullopt);
    EXPECT_EQ(mark_of("stowage"), std::nullopt);
}

}  // namespace
}  // namespace stowage::profiler
