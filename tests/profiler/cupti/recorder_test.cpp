#include "profiler/cupti/recorder.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "profiler/cupti/cupti_error.hpp"
#include "tests/profiler/cupti/fake_cupti.hpp"

namespace stowage::profiler {
namespace {

using namespace std::chrono_literals;
using support::FakeCupti;

CUpti_ActivityKernel10 kernel(std::uint32_t correlation, std::uint64_t start, std::uint64_t node = 0) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = "spin";
    record.start = start;
    record.end = start + 10;
    record.correlationId = correlation;
    record.graphNodeId = node;
    return record;
}

CUpti_ActivityExternalCorrelation external(std::uint32_t correlation, std::uint64_t operation) {
    CUpti_ActivityExternalCorrelation record{};
    record.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
    record.externalId = operation;
    record.correlationId = correlation;
    return record;
}

class Recorder : public testing::Test {
protected:
    FakeCupti& fake() { return *fake_; }
    std::shared_ptr<FakeCupti> fake_ = std::make_shared<FakeCupti>();
    template <class Action>
    static std::string failure_of(const Action& action) {
        try {
            action();
        } catch (const CuptiError& error) {
            return error.what();
        }
        return "";
    }
};

TEST_F(Recorder, JoinsActivitiesWithTheOperationsOfTheirCalls) {
    ActivityRecorder recorder(fake_);
    recorder.start();
    fake().put(external(1, 7));
    fake().put(kernel(1, 100));
    fake().put(kernel(2, 200));
    recorder.stop();
    const Recording recording = recorder.take();
    ASSERT_EQ(recording.activities.size(), 2U);
    EXPECT_EQ(recording.activities[0].issued_under, 7U);
    EXPECT_EQ(recording.activities[0].start, 100ns);
    EXPECT_EQ(recording.activities[1].issued_under, kNoOperation);
    EXPECT_EQ(recording.names.at(recording.activities[0].name), "spin");
    EXPECT_EQ(recording.buffers, 1U);
}

// The call is recorded when it returns, the kernel when it is done: often a buffer later.
TEST_F(Recorder, JoinsAcrossBuffers) {
    ActivityRecorder recorder(fake_);
    recorder.start();
    fake().put(external(1, 7));
    recorder.flush();
    fake().put(kernel(1, 100));
    recorder.flush();
    const Recording recording = recorder.take();
    ASSERT_EQ(recording.activities.size(), 1U);
    EXPECT_EQ(recording.activities[0].issued_under, 7U);
    EXPECT_EQ(recording.buffers, 2U);
}

TEST_F(Recorder, ReportsDroppedRecordsOnce) {
    ActivityRecorder recorder(fake_);
    recorder.start();
    fake().put(kernel(1, 100));
    fake().drop(3);
    recorder.flush();
    EXPECT_EQ(recorder.take().dropped, 3U);
    EXPECT_EQ(recorder.take().dropped, 0U);
}

TEST_F(Recorder, SaysThatNothingCameAtAll) {
    ActivityRecorder recorder(fake_);
    recorder.start();
    recorder.stop();
    EXPECT_EQ(recorder.take().buffers, 0U);
}

TEST_F(Recorder, GivesNodesToWhatIsPushedWhenTheyAreMade) {
    ActivityRecorder recorder(fake_);
    fake().create_node(1);
    {
        const OperationScope outer(&recorder, 3);
        fake().create_node(2);
        {
            const OperationScope inner(&recorder, 4);
            fake().create_node(3);
        }
        fake().create_node(4);
    }
    fake().create_node(5);
    EXPECT_EQ(recorder.take().node_operations, (NodeOperations{{2, 3}, {3, 4}, {4, 3}}));
}

TEST_F(Recorder, GivesTheNodesOfAnExecutableGraphToThoseOfItsGraph) {
    ActivityRecorder recorder(fake_);
    {
        const OperationScope scope(&recorder, 3);
        fake().create_node(1);
    }
    fake().clone_node(1, 101);
    fake().clone_node(2, 102);  // whose original nobody pushed anything for
    EXPECT_EQ(recorder.take().node_operations, (NodeOperations{{1, 3}, {101, 3}}));
}

// Made executable while operation 9 is pushed, whose nodes they are not; told as created before or after.
TEST_F(Recorder, BelievesCloningRatherThanCreation) {
    ActivityRecorder recorder(fake_);
    {
        const OperationScope scope(&recorder, 3);
        fake().create_node(1);
        fake().create_node(2);
    }
    const OperationScope scope(&recorder, 9);
    fake().create_node(101);
    fake().clone_node(1, 101);
    fake().clone_node(2, 102);
    fake().create_node(102);
    EXPECT_EQ(recorder.take().node_operations, (NodeOperations{{1, 3}, {2, 3}, {101, 3}, {102, 3}}));
}

TEST_F(Recorder, KeepsThreadsApart) {
    ActivityRecorder recorder(fake_);
    const OperationScope scope(&recorder, 3);
    std::thread([&] { fake().create_node(1); }).join();
    fake().create_node(2);
    EXPECT_EQ(recorder.take().node_operations, (NodeOperations{{2, 3}}));
}

TEST_F(Recorder, TellsCuptiWhatIsPushed) {
    ActivityRecorder recorder(fake_);
    {
        const OperationScope scope(&recorder, 42);
        EXPECT_EQ(fake().pushed(), std::vector<std::uint64_t>{42});
    }
    EXPECT_TRUE(fake().pushed().empty());
}

TEST_F(Recorder, DoesNotPopWhatItDidNotPush) {
    ActivityRecorder recorder(fake_);
    EXPECT_THROW(recorder.pop_operation(), std::logic_error);
}

TEST_F(Recorder, ReadsCuptisClock) { EXPECT_EQ(ActivityRecorder(fake_).now(), 1234ns); }

TEST_F(Recorder, SaysWhichCallFailedAndWhoMayHoldCupti) {
    fake().fail("subscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    EXPECT_EQ(
        failure_of([&] { const ActivityRecorder recorder(fake_); }),
        "cuptiSubscribe failed: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (CUPTI error 39); another profiler "
        "in this process may hold CUPTI, which serves one at a time: run without Nsight, compute-sanitizer, "
        "cuda-gdb or torch.profiler");
}

TEST_F(Recorder, CanBeMadeAgainAfterItFailed) {
    fake().fail("register_buffers", CUPTI_ERROR_UNKNOWN);
    EXPECT_NE(failure_of([&] { const ActivityRecorder recorder(fake_); }), "");
    EXPECT_FALSE(fake().is_subscribed());
    fake().fail("register_buffers", CUPTI_SUCCESS);
    { const ActivityRecorder recorder(fake_); }
    EXPECT_FALSE(fake().is_subscribed());
}

TEST_F(Recorder, RecordsNothingIfItCannotRecordAll) {
    ActivityRecorder recorder(fake_);
    fake().fail("enable " + std::to_string(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_ERROR_NOT_COMPATIBLE);
    EXPECT_NE(failure_of([&] { recorder.start(); }), "");
    EXPECT_TRUE(fake().enabled().empty());
}

TEST_F(Recorder, LeavesCuptiAsItWas) {
    {
        ActivityRecorder recorder(fake_);
        recorder.start();
        EXPECT_EQ(fake().enabled().size(), 6U);  // correlation, two kinds of calls, kernels, copies, memsets
    }
    EXPECT_TRUE(fake().enabled().empty());
    EXPECT_FALSE(fake().is_subscribed());
}

TEST_F(Recorder, IsTheOnlyOne) {
    const ActivityRecorder recorder(fake_);
    EXPECT_THROW(ActivityRecorder(std::make_shared<FakeCupti>()), std::logic_error);
}

}  // namespace
}  // namespace stowage::profiler
