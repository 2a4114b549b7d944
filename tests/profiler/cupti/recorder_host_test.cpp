// The recorder with what the host does, with a fake CUPTI: kinds, names, ranges, nodes, buffers, who else is there, and
// what is left behind. What belongs to operations is in recorder_test.cpp.

#include <generated_nvtx_meta.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "profiler/cupti/activity_sink.hpp"
#include "profiler/cupti/cupti_error.hpp"
#include "profiler/cupti/recorder.hpp"
#include "tests/profiler/cupti/fake_cupti.hpp"

namespace stowage::profiler {
namespace {

using namespace std::chrono_literals;
using support::FakeCupti;

CUpti_ActivityAPI call(CUpti_ActivityKind kind, std::uint32_t number) {
    CUpti_ActivityAPI record{};
    record.kind = kind;
    record.cbid = number;
    record.start = 1;
    record.end = 2;
    return record;
}

CUpti_ActivityMarker2 marker(CUpti_ActivityFlag flags, std::uint32_t id, std::uint64_t time, const char* name) {
    CUpti_ActivityMarker2 record{};
    record.kind = CUPTI_ACTIVITY_KIND_MARKER;
    record.flags = flags;
    record.id = id;
    record.timestamp = time;
    record.name = name;
    return record;
}

CUpti_ActivityKernel10 kernel(std::uint64_t end) {
    CUpti_ActivityKernel10 record{};
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.name = "spin";
    record.start = 1;
    record.end = end;
    return record;
}

class HostRecorder : public testing::Test {
protected:
    FakeCupti& fake() { return *fake_; }
    ActivityRecorder recorder(RecorderOptions options) { return ActivityRecorder(fake_, std::move(options)); }
    static RecorderOptions everything() {
        RecorderOptions options;
        options.kinds = RecordKinds::all();
        options.buffers_ahead = 1;
        return options;
    }
    template <class Action>
    static std::string failure_of(const Action& action) {
        try {
            action();
        } catch (const CuptiError& error) {
            return error.what();
        }
        return "";
    }
    std::shared_ptr<FakeCupti> fake_ = std::make_shared<FakeCupti>();
};

TEST_F(HostRecorder, TurnsOnWhatIsAskedForAndNoMore) {
    const auto kinds_of = [&](RecordKinds kinds) {
        RecorderOptions options;
        options.kinds = kinds;
        ActivityRecorder recorder(fake_, options);
        recorder.start();
        return fake().enabled();
    };
    using Kinds = std::vector<CUpti_ActivityKind>;
    EXPECT_EQ(kinds_of({RecordKind::kernels}), Kinds{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    EXPECT_EQ(kinds_of({RecordKind::allocations, RecordKind::pools}),
              (Kinds{CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MEMORY_POOL}));
    EXPECT_EQ(kinds_of({RecordKind::events, RecordKind::synchronizations, RecordKind::ranges}),
              (Kinds{CUPTI_ACTIVITY_KIND_CUDA_EVENT, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_MARKER}));
    EXPECT_EQ(kinds_of({RecordKind::runtime_calls}), Kinds{CUPTI_ACTIVITY_KIND_RUNTIME});
    EXPECT_EQ(kinds_of({RecordKind::graph_nodes}), Kinds{});
    // Calls are on once though operations need them too: external correlation, two of calls, kernels, three of copies
    // and memsets, two of memory, events, synchronisations, markers.
    EXPECT_EQ(kinds_of(RecordKinds::all()).size(), 12U);
}

TEST_F(HostRecorder, NamesCalls) {
    ActivityRecorder recorder(fake_, everything());
    recorder.start();
    fake().put(call(CUPTI_ACTIVITY_KIND_RUNTIME, 211));
    fake().put(call(CUPTI_ACTIVITY_KIND_DRIVER, 307));
    fake().put(call(CUPTI_ACTIVITY_KIND_RUNTIME, 211));
    fake().put(call(CUPTI_ACTIVITY_KIND_DRIVER, 5));  // unknown to CUPTI
    recorder.stop();
    const Recording recording = recorder.take();
    std::vector<std::string> names;
    for (const Call& one : recording.calls) names.push_back(recording.names.at(one.name));
    EXPECT_EQ(names, (std::vector<std::string>{"cudaLaunchKernel_v7000", "cuLaunchKernel", "cudaLaunchKernel_v7000",
                                               "driver call 5"}));
}

TEST_F(HostRecorder, DoesNotKeepCallsThatOnlyOperationsNeed) {
    ActivityRecorder recorder(fake_);
    recorder.start();
    fake().put(call(CUPTI_ACTIVITY_KIND_RUNTIME, 211));
    recorder.stop();
    EXPECT_TRUE(recorder.take().calls.empty());
}

TEST_F(HostRecorder, JoinsTheSidesOfRangesAcrossBuffersAndTakes) {
    ActivityRecorder recorder(fake_, everything());
    recorder.start();
    fake().put(marker(CUPTI_ACTIVITY_FLAG_MARKER_START, 1, 10, "step"));
    recorder.flush();
    const Recording first = recorder.take();
    ASSERT_EQ(first.ranges.size(), 1U);
    EXPECT_EQ(first.ranges[0].end, kStillOpen);
    fake().put(marker(CUPTI_ACTIVITY_FLAG_MARKER_INSTANTANEOUS, 2, 11, "saved"));
    fake().put(marker(CUPTI_ACTIVITY_FLAG_MARKER_END, 1, 30, nullptr));
    recorder.stop();
    const Recording second = recorder.take();
    ASSERT_EQ(second.ranges.size(), 1U);
    EXPECT_EQ(second.names.at(second.ranges[0].name), "step");
    EXPECT_EQ(second.ranges[0].start, 10ns);
    EXPECT_EQ(second.ranges[0].end, 30ns);
    ASSERT_EQ(second.marks.size(), 1U);
    EXPECT_EQ(second.names.at(second.marks[0].name), "saved");
}

TEST_F(HostRecorder, NotesWhenAndByWhomNodesWereMade) {
    ActivityRecorder recorder(fake_, everything());
    fake().set_time(500);
    fake().create_node(3);
    fake().set_time(600);
    fake().clone_node(3, 103);
    const auto thread = static_cast<std::uint32_t>(syscall(SYS_gettid));
    EXPECT_EQ(recorder.take().nodes, (std::vector<GraphNode>{{3, 0, thread, 500ns}, {103, 3, thread, 600ns}}));
}

TEST_F(HostRecorder, DoesNotKeepNodesUnlessAsked) {
    ActivityRecorder recorder(fake_);
    fake().create_node(3);
    EXPECT_TRUE(recorder.take().nodes.empty());
}

TEST_F(HostRecorder, CountsDroppedRecordsByContextAndStream) {
    ActivityRecorder recorder(fake_, everything());
    recorder.start();
    fake().deliver_as(4, 7);
    fake().drop(3);
    recorder.flush();
    fake().drop(2);
    recorder.flush();
    fake().deliver_as(0, 0);
    fake().drop(1);
    recorder.flush();
    const Recording recording = recorder.take();
    EXPECT_EQ(recording.dropped, 6U);
    EXPECT_EQ(recording.drops, (std::vector<Drop>{{4, 7, 5}, {kNotApplicable, 0, 1}}));
    EXPECT_TRUE(recorder.take().drops.empty());
}

// A buffer of 8 MiB holds 38836 kernels of 216 bytes; the fake asks for one buffer and would write beyond a smaller
// one.
TEST_F(HostRecorder, TakesBuffersFullOfRecords) {
    static_assert(sizeof(CUpti_ActivityKernel10) == 216);
    constexpr std::size_t kFull = ActivitySink::kBufferBytes / sizeof(CUpti_ActivityKernel10);
    ActivityRecorder recorder(fake_, everything());
    recorder.start();
    for (int buffer = 0; buffer < 3; ++buffer) {
        for (std::size_t i = 0; i < kFull; ++i) fake().put(kernel(2 + i));
        recorder.flush();
    }
    const Recording recording = recorder.take();
    EXPECT_EQ(recording.activities.size(), 3 * kFull);
    EXPECT_EQ(recording.buffers, 3U);
    EXPECT_EQ(recording.dropped, 0U);
}

TEST_F(HostRecorder, GivesBuffersThatAreZeroAsItPromises) {
    ActivityRecorder recorder(fake_, everything());
    EXPECT_TRUE(fake().are_buffers_zeroed());
    recorder.start();
    for (int round = 0; round < 3; ++round) {  // from the second on, one that has been used
        std::size_t size = 0;
        std::uint8_t* const buffer = fake().ask_for_buffer(&size);
        ASSERT_EQ(size, ActivitySink::kBufferBytes);
        EXPECT_EQ(std::count(buffer, buffer + size, 0), static_cast<std::ptrdiff_t>(size));
        std::fill_n(buffer, 100, std::uint8_t{0xFF});
        fake().deliver(buffer, 80);  // what lies behind was not complete
    }
}

TEST_F(HostRecorder, HasBuffersReadyAndReusesThem) {
    RecorderOptions options = everything();
    options.buffers_ahead = 2;
    ActivityRecorder recorder(fake_, options);
    recorder.start();
    std::size_t size = 0;
    std::uint8_t* const first = fake().ask_for_buffer(&size);
    std::uint8_t* const second = fake().ask_for_buffer(&size);
    std::uint8_t* const third = fake().ask_for_buffer(&size);  // more than lay ready
    EXPECT_NE(first, second);
    ASSERT_NE(third, nullptr);
    EXPECT_EQ(recorder.take().missing_buffers, 3U);
    for (std::uint8_t* buffer : {first, second, third}) fake().deliver(buffer, 0);
    EXPECT_EQ(recorder.take().missing_buffers, 0U);
    std::uint8_t* const again = fake().ask_for_buffer(&size);
    EXPECT_TRUE(again == first || again == second || again == third);
    fake().deliver(again, 0);
}

TEST_F(HostRecorder, LeavesBuffersOfOthersAlone) {
    ActivityRecorder recorder(fake_, everything());
    recorder.start();
    std::vector<std::uint8_t> theirs(4096);
    fake().deliver(theirs.data(), theirs.size());
    const Recording recording = recorder.take();
    EXPECT_EQ(recording.foreign_buffers, 1U);
    EXPECT_EQ(recording.buffers, 0U);
    EXPECT_EQ(doubts_about(recording).size(), 1U);
}

void CUPTIAPI their_request(std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
    static std::vector<std::uint8_t> theirs(4096);
    *buffer = theirs.data();
    *size = theirs.size();
    *most = 0;
}
void CUPTIAPI their_completion(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* /*buffer*/,
                               std::size_t /*size*/, std::size_t /*valid*/) {}

// As torch.profiler does: from then on it gets the records, while the device goes on being used.
TEST_F(HostRecorder, NoticesThatRecordsStopComing) {
    RecorderOptions options = everything();
    options.watch_waits = true;
    ActivityRecorder recorder(fake_, options);
    recorder.start();
    fake().put(kernel(5'000'000'000));
    recorder.flush();
    fake().take_over(their_request, their_completion);
    fake().put(kernel(9'000'000'000));
    fake().set_time(10'000'000'000);
    fake().synchronize();
    recorder.stop();
    const Recording recording = recorder.take();
    EXPECT_EQ(recording.last_wait, 10s);
    ASSERT_EQ(doubts_about(recording).size(), 1U);
    EXPECT_EQ(doubts_about(recording)[0].substr(0, 64),
              "the last record is 5 s older than the last wait for the device: ");
}

TEST_F(HostRecorder, DoesNotExpectRecordsOfWaitsOutsideOfRecording) {
    RecorderOptions options = everything();
    options.watch_waits = true;
    ActivityRecorder recorder(fake_, options);
    fake().synchronize();
    EXPECT_EQ(recorder.take().last_wait, 0ns);
}

// Kernels alone may end long before the last wait.
TEST_F(HostRecorder, DoesNotWatchWaitsThatLeaveNoRecord) {
    RecorderOptions options = everything();
    options.watch_waits = true;
    options.kinds = {RecordKind::kernels, RecordKind::ranges};
    ActivityRecorder recorder(fake_, options);
    recorder.start();
    fake().put(kernel(2));
    fake().set_time(10'000'000'000);
    fake().synchronize();
    recorder.stop();
    EXPECT_TRUE(doubts_about(recorder.take()).empty());
}

TEST_F(HostRecorder, StartsAndPausesOnMarks) {
    ActivityRecorder* self = nullptr;
    RecorderOptions options = everything();
    options.on_nvtx = [&](std::string_view name) {
        if (name == "go") self->start();
        if (name == "halt") self->pause();
    };
    ActivityRecorder recorder(fake_, options);
    self = &recorder;
    const nvtxMarkA_params go{"go"};
    const nvtxMarkA_params other{"other"};
    const nvtxRangePushA_params halt{"halt"};
    fake().nvtx(CUPTI_CBID_NVTX_nvtxMarkA, &other);
    EXPECT_TRUE(fake().enabled().empty());
    fake().nvtx(CUPTI_CBID_NVTX_nvtxMarkA, &go);
    fake().nvtx(CUPTI_CBID_NVTX_nvtxMarkA, &go);  // once is enough
    EXPECT_EQ(fake().enabled().size(), 12U);
    fake().nvtx(CUPTI_CBID_NVTX_nvtxRangePushA, &halt);
    EXPECT_TRUE(fake().enabled().empty());
}

TEST_F(HostRecorder, LeavesNothingBehind) {
    {
        RecorderOptions options = everything();
        options.watch_waits = true;
        options.on_nvtx = [](std::string_view) {};
        ActivityRecorder recorder(fake_, options);
        recorder.start();
        EXPECT_EQ(fake().callbacks_on(), 2U + 2U + 9U);  // nodes, waits, naming calls of NVTX
        EXPECT_EQ(fake().thread_ids(), CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
    }
    EXPECT_TRUE(fake().enabled().empty());
    EXPECT_EQ(fake().callbacks_on(), 0U);
    EXPECT_FALSE(fake().is_subscribed());
    EXPECT_FALSE(fake().are_buffers_zeroed());
    EXPECT_EQ(fake().thread_ids(), CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT);
    EXPECT_FALSE(fake().is_finalized());  // only where it was asked for
}

TEST_F(HostRecorder, TakesCuptiOutOfTheProcessIfAsked) {
    {
        RecorderOptions options = everything();
        options.detach = true;
        const ActivityRecorder recorder(fake_, options);
        EXPECT_FALSE(fake().is_finalized());
    }
    EXPECT_TRUE(fake().is_finalized());
    // Last of all, when nothing of ours is there any more.
    const auto& calls = fake().calls();
    EXPECT_LT(std::find(calls.begin(), calls.end(), "unsubscribe"), std::find(calls.begin(), calls.end(), "finalize"));
}

TEST_F(HostRecorder, SaysWhatToDoWithoutPermission) {
    ActivityRecorder recorder(fake_, everything());
    fake().fail("enable " + std::to_string(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
    EXPECT_EQ(
        failure_of([&] { recorder.start(); }),
        "cuptiActivityEnable failed: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (CUPTI error 35); this user may not profile "
        "on this machine: run as root (in a container: with --cap-add=SYS_ADMIN), or have the driver loaded with the "
        "option NVreg_RestrictProfilingToAdminUsers=0");
    EXPECT_TRUE(fake().enabled().empty());
}

TEST_F(HostRecorder, RefusesAnotherVersionBeforeItTouchesAnything) {
    fake().set_version(28);
    EXPECT_EQ(
        failure_of([&] { recorder(everything()); }),
        "this process has loaded CUPTI number 28, of CUDA 12 or older; stowage reads the records of CUPTI 13.x: put "
        "the folder with libcupti.so.13 of the CUDA 13 toolkit first in LD_LIBRARY_PATH, or use a PyTorch built for "
        "CUDA 13");
    EXPECT_EQ(fake().calls(), std::vector<std::string>{"version"});
    fake().set_version(140000);
    EXPECT_NE(failure_of([&] { recorder(everything()); }), "");
    fake().set_version(130300);
    EXPECT_EQ(failure_of([&] { recorder(everything()); }), "");
}

TEST(CuptiVersion, IsReadAsToolkitsAreNamed) {
    EXPECT_EQ(version_text(28), "number 28, of CUDA 12 or older");
    EXPECT_EQ(version_text(130000), "13.0");
    EXPECT_EQ(version_text(130001), "13.0, update 1");
    EXPECT_EQ(version_text(140200), "14.2");
}

}  // namespace
}  // namespace stowage::profiler
