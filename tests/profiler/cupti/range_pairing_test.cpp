#include "profiler/cupti/range_pairing.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

using namespace std::chrono_literals;
using types::Nanoseconds;

RangeEdge begin(std::uint32_t id, Nanoseconds time, std::uint32_t name = 0) {
    RangeEdge edge;
    edge.id = id;
    edge.range = {.name = name, .thread = 12, .id = id, .start = time, .end = kStillOpen};
    return edge;
}

RangeEdge end(std::uint32_t id, Nanoseconds time) {
    RangeEdge edge;
    edge.id = id;
    edge.is_end = true;
    edge.range.end = time;
    return edge;
}

TEST(RangePairing, JoinsBothSidesAndOrdersByStarts) {
    RangePairing pairing;
    pairing.add({begin(1, 10ns), begin(2, 12ns), end(2, 14ns), end(1, 20ns)});
    const std::vector<NvtxRange> ranges = pairing.take();
    ASSERT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges[0], (NvtxRange{.thread = 12, .id = 1, .start = 10ns, .end = 20ns}));
    EXPECT_EQ(ranges[1], (NvtxRange{.thread = 12, .id = 2, .start = 12ns, .end = 14ns}));
    EXPECT_TRUE(pairing.take().empty());
}

// Another thread ended it, whose buffer was full first.
TEST(RangePairing, TakesAnEndThatComesBeforeItsStart) {
    RangePairing pairing;
    pairing.add({end(1, 20ns)});
    EXPECT_TRUE(pairing.take().empty());
    pairing.add({begin(1, 10ns)});
    const std::vector<NvtxRange> ranges = pairing.take();
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_EQ(ranges[0].start, 10ns);
    EXPECT_EQ(ranges[0].end, 20ns);
}

TEST(RangePairing, TellsAnOpenRangeAgainWhenItHasEnded) {
    RangePairing pairing;
    pairing.add({begin(1, 10ns)});
    ASSERT_EQ(pairing.take().size(), 1U);
    pairing.add({end(1, 30ns)});
    const std::vector<NvtxRange> ranges = pairing.take();
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_EQ(ranges[0].end, 30ns);
}

TEST(RangePairing, KeepsTheNamesOfOpenRanges) {
    NameTable first;
    const std::uint32_t name = first.index_of("forward");
    RangePairing pairing;
    pairing.add({begin(1, 10ns, name)});
    NameTable second;
    second.index_of("other");
    pairing.rename(first, second);
    pairing.add({end(1, 30ns)});
    EXPECT_EQ(second.names().at(pairing.take().at(0).name), "forward");
}

}  // namespace
}  // namespace stowage::profiler
