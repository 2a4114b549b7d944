#include "scenarios/recording/event_table.hpp"

#include <gtest/gtest.h>

namespace stowage::recording {
namespace {

Event kernel(std::uint32_t operation, std::int64_t start, std::int64_t duration) {
    Event event;
    event.operation = operation;
    event.stream = 7;
    event.name = 1;
    event.start = Nanoseconds{start};
    event.duration = Nanoseconds{duration};
    return event;
}

// The example of the header: the second kernel starts 3 us behind the first one's end and is 1 us shorter.
TEST(EventTable, HoldsDifferences) {
    const std::vector<Event> events{kernel(4, 10'000, 40'000), kernel(5, 53'000, 39'000)};
    const EventTable table = table_of(events);
    ASSERT_EQ(table.classes.size(), 1U);
    EXPECT_EQ(table.event_class, (Column{0, 0}));
    EXPECT_EQ(table.operation, (Column{4, 1}));
    EXPECT_EQ(table.layer, (Column{-1, 0}));
    EXPECT_EQ(table.gap_ns, (Column{10'000, 3'000}));
    EXPECT_EQ(table.duration_ns, (Column{40'000, -1'000}));
    EXPECT_EQ(events_of(table), events);
}

TEST(EventTable, GivesBackEventsThatOverlap) {
    std::vector<Event> events{kernel(0, 0, 100), kernel(2, 50, 20), kernel(1, 60, 200)};
    events[1].kind = EventKind::device_to_host;
    events[1].bytes = Bytes{1 << 20};
    events[1].in_graph = true;
    events[2].layer = 3;
    events[2].microbatch = 2;
    EXPECT_EQ(events_of(table_of(events)), events);
}

std::string fault(const EventTable& table) {
    try {
        (void)events_of(table);
    } catch (const TableError& error) {
        return error.what();
    }
    return "none";
}

TEST(EventTable, SaysWhichRowDoesNotFit) {
    const EventTable good = table_of({kernel(4, 10, 40), kernel(5, 53, 39)});
    EXPECT_EQ(fault(good), "none");
    EventTable table = good;
    table.event_class[1] = 1;
    EXPECT_EQ(fault(table), "class, row 1: expected 0 to 1 without the last, found 1");
    table = good;
    table.operation[1] = -5;
    EXPECT_EQ(fault(table), "operation, row 1: expected a sum from 0 to 4294967295");
    table = good;
    table.layer[0] = std::int64_t{1} << 31;
    EXPECT_EQ(fault(table), "layer, row 0: expected a sum from -2147483648 to 2147483647");
    table = good;
    table.gap_ns[1] = INT64_MAX;
    EXPECT_EQ(fault(table), "gap_ns, row 1: expected a time of less than 292 years");
}

std::vector<Group> groups() {
    const Tensor one{.storage = 3,
                     .bytes = Bytes{64},
                     .storage_bytes = Bytes{128},
                     .allocated = Nanoseconds{-5},
                     .freed = Nanoseconds{70},
                     .offloaded = true};
    Tensor other = one;
    other.storage = 1;
    other.parameter = true;
    return {{"core_attn", 0, 1, 0, {one, other}}, {"attn_proj", 0, 1, 0, {}}, {"core_attn", 1, 0, 2, {one}}};
}

TEST(GroupTable, GivesBackGroups) {
    const GroupTable table = table_of(groups());
    EXPECT_EQ(table.modules, (std::vector<std::string>{"core_attn", "attn_proj"}));
    EXPECT_EQ(table.tensors, (Column{2, 0, 1}));
    EXPECT_EQ(table.storage, (Column{3, -2, 2}));
    EXPECT_EQ(groups_of(table), groups());
}

TEST(GroupTable, WantsEveryTensorInAGroup) {
    GroupTable table = table_of(groups());
    table.tensors[2] = 0;
    EXPECT_THROW(groups_of(table), TableError);
    table.tensors[2] = 2;
    EXPECT_THROW(groups_of(table), TableError);
}

}  // namespace
}  // namespace stowage::recording
