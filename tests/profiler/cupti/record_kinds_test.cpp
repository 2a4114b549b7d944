#include "profiler/cupti/record_kinds.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace stowage::profiler {
namespace {

TEST(RecordKinds, TextAndBack) {
    const RecordKinds kinds = {RecordKind::ranges, RecordKind::kernels};
    EXPECT_EQ(text_of(kinds), "kernels,ranges");  // in the order of the enumeration
    EXPECT_EQ(kinds_of("ranges,kernels"), kinds);
    EXPECT_EQ(kinds_of(text_of(kOperationKinds)), kOperationKinds);
    EXPECT_TRUE(kinds_of("").empty());
}

TEST(RecordKinds, AllIsAWord) {
    EXPECT_EQ(kinds_of("all"), RecordKinds::all());
    EXPECT_EQ(text_of(RecordKinds::all()), "all");
    for (std::size_t i = 0; i < kRecordKindCount; ++i) {
        const auto kind = static_cast<RecordKind>(i);
        EXPECT_TRUE(RecordKinds::all().has(kind));
        EXPECT_EQ(kinds_of(name_of(kind)), RecordKinds{kind});
    }
}

TEST(RecordKinds, SaysWhatThereIs) {
    try {
        static_cast<void>(kinds_of("kernels,nvtx"));
        FAIL();
    } catch (const std::invalid_argument& error) {
        EXPECT_STREQ(error.what(),
                     "'nvtx' is no kind of record; there are all, operations,kernels,copies,peer_copies,memsets,"
                     "allocations,pools,events,synchronizations,runtime_calls,driver_calls,ranges,graph_nodes");
    }
}

}  // namespace
}  // namespace stowage::profiler
