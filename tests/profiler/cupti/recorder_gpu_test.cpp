#include "profiler/cupti/recorder.hpp"

#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/graph.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "profiler/cupti/correlate.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::profiler {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;
using executor::check;

constexpr types::Bytes kBytes = 4_MiB;
constexpr std::size_t kCount = 4U << 20;

constexpr OperationNumber kSet = 3;
constexpr OperationNumber kLeave = 4;
constexpr OperationNumber kReturn = 5;
constexpr OperationNumber kFirstLaunch = 100;
constexpr OperationNumber kSecondLaunch = 200;

/// A memset, a copy to the host and a copy back, each under an operation of its own.
class RecorderOnDevice : public support::GpuTest {
protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        device_ = executor::DeviceBuffer(kBytes);
        host_ = executor::PinnedBuffer(kBytes, executor::PinnedPlacement::anywhere);
        stream_.emplace();
        recorder_ = std::make_unique<ActivityRecorder>();
    }

    void issue() {
        {
            const OperationScope scope(recorder_.get(), kSet);
            check(cudaMemsetAsync(device_.data(), 1, kCount, stream_->get()), "setting memory");
        }
        {
            const OperationScope scope(recorder_.get(), kLeave);
            check(cudaMemcpyAsync(host_.data(), device_.data(), kCount, cudaMemcpyDeviceToHost, stream_->get()),
                  "copying to the host");
        }
        const OperationScope scope(recorder_.get(), kReturn);
        check(cudaMemcpyAsync(device_.data(), host_.data(), kCount, cudaMemcpyHostToDevice, stream_->get()),
              "copying to the device");
    }

    executor::GraphExec captured() {
        executor::Capture capture(stream_->ref());
        issue();
        return executor::GraphExec(capture.finish());
    }

    void launch(const executor::GraphExec& exec, OperationNumber operation) {
        const OperationScope scope(recorder_.get(), operation);
        exec.launch(stream_->ref());
    }

    Recording stopped() {
        stream_->synchronize();
        recorder_->stop();
        return recorder_->take();
    }

    executor::DeviceBuffer device_;
    executor::PinnedBuffer host_;
    std::optional<executor::Stream> stream_;
    std::unique_ptr<ActivityRecorder> recorder_;
};

void print(const Recording& recording, const CorrelatedTimes& times) {
    std::cout << recording.activities.size() << " activities, " << recording.node_operations.size() << " nodes, "
              << recording.buffers << " buffers, " << recording.dropped << " dropped, " << recording.untimed
              << " untimed, " << times.unmatched << " unmatched\n";
    for (const Activity& activity : recording.activities)
        std::cout << "  kind " << static_cast<int>(activity.kind) << " " << recording.names.at(activity.name)
                  << " stream " << activity.stream << " node " << activity.graph_node << " under "
                  << activity.issued_under << ": " << (activity.end - activity.start).count() << " ns\n";
}

/// How many activities each operation has, by operation and launch.
std::map<std::pair<OperationNumber, OperationNumber>, std::uint32_t> counts(const CorrelatedTimes& times) {
    std::map<std::pair<OperationNumber, OperationNumber>, std::uint32_t> found;
    for (const OperationTimes& entry : times.operations)
        found[{entry.operation, entry.launch}] = entry.kernels + entry.copies + entry.memsets;
    return found;
}

using Counts = std::map<std::pair<OperationNumber, OperationNumber>, std::uint32_t>;
const Counts& of_two_launches() {
    static const Counts kCounts = {{{kSet, kFirstLaunch}, 1},    {{kSet, kSecondLaunch}, 1},
                                   {{kLeave, kFirstLaunch}, 1},  {{kLeave, kSecondLaunch}, 1},
                                   {{kReturn, kFirstLaunch}, 1}, {{kReturn, kSecondLaunch}, 1}};
    return kCounts;
}

TEST_F(RecorderOnDevice, TimesWhatIsIssuedEagerly) {
    recorder_->start();
    issue();
    const Recording recording = stopped();
    const CorrelatedTimes times = correlate(recording.activities, recording.node_operations);
    print(recording, times);
    EXPECT_EQ(counts(times),
              (Counts{{{kSet, kNoOperation}, 1}, {{kLeave, kNoOperation}, 1}, {{kReturn, kNoOperation}, 1}}));
    EXPECT_EQ(times.unmatched, 0U);
    EXPECT_EQ(recording.dropped, 0U);
    ASSERT_EQ(times.operations.size(), 3U);
    EXPECT_EQ(times.operations[1].operation, kLeave);  // one stream: in the order of issue
    EXPECT_EQ(times.operations[1].bytes, kBytes);
    EXPECT_GE(times.operations[1].first_start, times.operations[0].last_end);
    EXPECT_GE(times.operations[2].first_start, times.operations[1].last_end);
}

// The recorder is there before the capture, and records before it.
TEST_F(RecorderOnDevice, TimesTheNodesOfEachReplay) {
    recorder_->start();
    const executor::GraphExec exec = captured();
    launch(exec, kFirstLaunch);
    launch(exec, kSecondLaunch);
    const Recording recording = stopped();
    const CorrelatedTimes times = correlate(recording.activities, recording.node_operations);
    print(recording, times);
    EXPECT_EQ(counts(times), of_two_launches());
    EXPECT_EQ(times.unmatched, 0U);
    EXPECT_EQ(recording.dropped, 0U);
    EXPECT_EQ(times.launches.size(), 2U);
}

// The recorder is there before the capture, but records only after it: warming up goes unrecorded.
TEST_F(RecorderOnDevice, TimesTheNodesOfAGraphThatWasCapturedBeforeItStarted) {
    const executor::GraphExec exec = captured();
    launch(exec, kFirstLaunch);
    stream_->synchronize();
    recorder_->start();
    launch(exec, kFirstLaunch);
    launch(exec, kSecondLaunch);
    const Recording recording = stopped();
    const CorrelatedTimes times = correlate(recording.activities, recording.node_operations);
    print(recording, times);
    EXPECT_EQ(counts(times), of_two_launches());
    EXPECT_EQ(times.unmatched, 0U);
}

TEST_F(RecorderOnDevice, GivesEachTakeItsOwn) {
    recorder_->start();
    issue();
    stream_->synchronize();
    recorder_->flush();
    EXPECT_EQ(recorder_->take().activities.size(), 3U);
    issue();
    EXPECT_EQ(stopped().activities.size(), 3U);
}

// CUPTI turns the device's clock into the host's, to within microseconds.
TEST_F(RecorderOnDevice, HasAClockThatActivitiesAreOn) {
    recorder_->start();
    const types::Nanoseconds before = recorder_->now();
    issue();
    const Recording recording = stopped();
    const types::Nanoseconds after = recorder_->now();
    for (const Activity& activity : recording.activities) {
        EXPECT_GT(activity.start, before - 1ms);
        EXPECT_LT(activity.end, after + 1ms);
    }
}

}  // namespace
}  // namespace stowage::profiler
