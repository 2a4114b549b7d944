#include "profiler/cupti/decode.hpp"

#include <gtest/gtest.h>

namespace stowage::profiler {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;

template <class Record>
Decoded decoded(const Record& record) {
    Decoded into;
    decode(reinterpret_cast<const CUpti_Activity&>(record), into);
    return into;
}

TEST(Decode, ReadsAKernelOfAGraph) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = "spin";
    record.start = 100;
    record.end = 160;
    record.deviceId = 1;
    record.streamId = 13;
    record.correlationId = 77;
    record.graphId = 5;
    record.graphNodeId = (5ULL << 32) + 2;
    const Decoded into = decoded(record);
    ASSERT_EQ(into.activities.size(), 1U);
    const Activity expected = {.kind = ActivityKind::kernel,
                               .copy_kind = CopyKind::none,
                               .name = 1,
                               .start = 100ns,
                               .end = 160ns,
                               .bytes = 0_B,
                               .device = 1,
                               .stream = 13,
                               .correlation = 77,
                               .graph = 5,
                               .graph_node = (5ULL << 32) + 2};
    EXPECT_EQ(into.activities[0], expected);
    EXPECT_EQ(into.names.names(), (std::vector<std::string>{"", "spin"}));
}

TEST(Decode, ReadsACopyAndItsDirection) {
    CUpti_ActivityMemcpy6 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
    record.bytes = 16 << 20;
    record.start = 5;
    record.end = 9;
    record.streamId = 14;
    record.correlationId = 78;
    record.graphNodeId = 3;
    const Activity activity = decoded(record).activities.at(0);
    EXPECT_EQ(activity.kind, ActivityKind::copy);
    EXPECT_EQ(activity.copy_kind, CopyKind::device_to_host);
    EXPECT_EQ(activity.bytes, 16_MiB);
    EXPECT_EQ(activity.end - activity.start, 4ns);
    EXPECT_EQ(activity.stream, 14U);
    EXPECT_EQ(activity.correlation, 78U);
    EXPECT_EQ(activity.graph_node, 3U);
}

TEST(Decode, KnowsTheDirectionsOfCopies) {
    CUpti_ActivityMemcpy6 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    record.end = 1;
    const auto kind_of = [&](CUpti_ActivityMemcpyKind kind) {
        record.copyKind = static_cast<std::uint8_t>(kind);
        return decoded(record).activities.at(0).copy_kind;
    };
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD), CopyKind::host_to_device);
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD), CopyKind::device_to_device);
    EXPECT_EQ(kind_of(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP), CopyKind::other);
}

TEST(Decode, ReadsAMemset) {
    CUpti_ActivityMemset4 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    record.bytes = 512;
    record.start = 1;
    record.end = 3;
    record.graphId = 4;
    record.graphNodeId = 9;
    const Activity activity = decoded(record).activities.at(0);
    EXPECT_EQ(activity.kind, ActivityKind::memset);
    EXPECT_EQ(activity.bytes, 512_B);
    EXPECT_EQ(activity.graph, 4U);
    EXPECT_EQ(activity.graph_node, 9U);
}

TEST(Decode, CountsWhatCuptiCouldNotTime) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = "spin";
    const Decoded into = decoded(record);
    EXPECT_TRUE(into.activities.empty());
    EXPECT_EQ(into.untimed, 1U);
}

TEST(Decode, NotesWhatACallWasMadeUnderIfItIsOurs) {
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    record.externalId = 7;
    record.correlationId = 77;
    EXPECT_EQ(decoded(record).issued_under.at(77), 7U);
    record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1;
    EXPECT_TRUE(decoded(record).issued_under.empty());
}

TEST(Decode, PassesOverTheCallsThemselves) {
    CUpti_ActivityAPI record{};
    record.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
    record.start = 1;
    record.end = 2;
    const Decoded into = decoded(record);
    EXPECT_TRUE(into.activities.empty());
    EXPECT_EQ(into.untimed, 0U);
}

// "b" is the first name of the second part and the second of the whole.
TEST(Append, RenumbersNames) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.end = 1;
    record.name = "a";
    Decoded whole = decoded(record);
    record.name = "b";
    append(whole, decoded(record));
    EXPECT_EQ(whole.names.names(), (std::vector<std::string>{"", "a", "b"}));
    ASSERT_EQ(whole.activities.size(), 2U);
    EXPECT_EQ(whole.activities[1].name, 2U);
}

}  // namespace
}  // namespace stowage::profiler
