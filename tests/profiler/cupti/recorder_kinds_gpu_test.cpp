// Every kind of record from a device, and that none is lost. What was measured is printed.

#include <gtest/gtest.h>
#include <link.h>
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/event.hpp"
#include "executor/cuda/graph.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "profiler/cupti/cupti_api.hpp"
#include "profiler/cupti/range_marks.hpp"
#include "profiler/cupti/recorder.hpp"
#include "tests/profiler/cupti/busy_kernel.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::profiler {
namespace {

using namespace types::literals;
using executor::check;

constexpr std::size_t kBytes = 4U << 20;

int find_cupti(dl_phdr_info* loaded, std::size_t /*size*/, void* found) {
    const std::string name = loaded->dlpi_name == nullptr ? "" : loaded->dlpi_name;
    if (std::filesystem::path(name).filename().string().starts_with("libcupti.so"))
        *static_cast<std::string*>(found) = name;
    return 0;
}

/// NVTX looks at the variable in its first call.
void send_ranges_to_cupti() {
    std::string path;
    dl_iterate_phdr(find_cupti, &path);
    path = std::filesystem::absolute(path).string();
    setenv("NVTX_INJECTION64_PATH", path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    std::cout << "ranges go to " << path << "\n";
}

class KindsOnDevice : public support::GpuTest {
protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        api_ = open_cupti();
        static const bool kOnce = (send_ranges_to_cupti(), true);
        static_cast<void>(kOnce);
        device_ = executor::DeviceBuffer(4_MiB);
        host_ = executor::PinnedBuffer(4_MiB, executor::PinnedPlacement::anywhere);
        stream_.emplace();
        other_.emplace();
        RecorderOptions options;
        options.kinds = RecordKinds::all();
        options.watch_waits = true;
        recorder_ = std::make_unique<ActivityRecorder>(api_, options);
    }

    void busy(unsigned rounds = 100) {
        check(support::launch_busy(reinterpret_cast<float*>(device_.data()), rounds, stream_->get()), "launching");
    }

    executor::GraphExec captured(int kernels) {
        executor::Capture capture(stream_->ref());
        for (int i = 0; i < kernels; ++i) busy();
        return executor::GraphExec(capture.finish());
    }

    Recording stopped() {
        check(cudaDeviceSynchronize(), "waiting for the device");
        recorder_->stop();
        return recorder_->take();
    }

    std::shared_ptr<CuptiApi> api_;
    executor::DeviceBuffer device_;
    executor::PinnedBuffer host_;
    std::optional<executor::Stream> stream_;
    std::optional<executor::Stream> other_;
    std::unique_ptr<ActivityRecorder> recorder_;
};

void print(const Recording& recording) {
    std::cout << recording.activities.size() << " activities, " << recording.calls.size() << " calls, "
              << recording.allocations.size() << " allocations, " << recording.pools.size() << " pools, "
              << recording.events.size() << " events, " << recording.waits.size() << " waits, "
              << recording.marks.size() << " marks, " << recording.ranges.size() << " ranges, "
              << recording.nodes.size() << " nodes; " << recording.buffers << " buffers, " << recording.missing_buffers
              << " missing, " << recording.dropped << " dropped, " << recording.untimed << " untimed\n";
    for (const std::string& doubt : doubts_about(recording)) std::cout << "  doubt: " << doubt << "\n";
}

void use_memory(cudaStream_t stream) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, kBytes), "allocating");
    check(cudaFree(memory), "freeing");
    check(cudaMallocHost(&memory, kBytes), "allocating pinned memory");
    check(cudaFreeHost(memory), "freeing pinned memory");
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool = nullptr;
    check(cudaMemPoolCreate(&pool, &properties), "making a pool");
    check(cudaMallocFromPoolAsync(&memory, kBytes, pool, stream), "allocating from a pool");
    check(cudaFreeAsync(memory, stream), "freeing into a pool");
    check(cudaStreamSynchronize(stream), "waiting");
    check(cudaMemPoolTrimTo(pool, 0), "trimming a pool");
    check(cudaMemPoolDestroy(pool), "destroying a pool");
}

TEST_F(KindsOnDevice, AllArrive) {
    recorder_->start();
    nvtxDomainHandle_t domain = nvtxDomainCreateA("stowage test");
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = "in a domain";
    nvtxDomainRangePushEx(domain, &attributes);
    nvtxRangePushA("pushed");
    const nvtxRangeId_t started = nvtxRangeStartA("started");
    nvtxMarkA("marked");
    use_memory(stream_->get());
    busy();
    check(cudaMemsetAsync(device_.data(), 1, kBytes, stream_->get()), "setting memory");
    check(cudaMemcpyAsync(host_.data(), device_.data(), kBytes, cudaMemcpyDeviceToHost, stream_->get()), "copying");
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "making an event");
    check(cudaEventRecord(event, stream_->get()), "recording an event");
    check(cudaStreamWaitEvent(other_->get(), event), "having a stream wait");
    check(cudaEventSynchronize(event), "waiting for an event");
    check(cudaStreamSynchronize(stream_->get()), "waiting for a stream");
    nvtxRangeEnd(started);
    nvtxRangePop();
    nvtxDomainRangePop(domain);
    const executor::GraphExec exec = captured(3);
    exec.launch(stream_->ref());
    const Recording recording = stopped();
    check(cudaEventDestroy(event), "destroying an event");
    print(recording);
    const auto name = [&](std::uint32_t index) { return recording.names.at(index); };

    std::map<ActivityKind, int> activities;
    for (const Activity& activity : recording.activities) ++activities[activity.kind];
    EXPECT_EQ(activities[ActivityKind::kernel], 4);
    EXPECT_EQ(activities[ActivityKind::copy], 1);
    EXPECT_EQ(activities[ActivityKind::memset], 1);

    std::map<std::string, int> calls;
    for (const Call& call : recording.calls) ++calls[name(call.name)];
    for (const auto& [which, count] : calls) std::cout << "  call " << which << " " << count << "\n";
    EXPECT_GT(recording.calls.size(), 20U);

    for (const Allocation& one : recording.allocations)
        std::cout << "  " << (one.release ? "free" : "allocate") << " place " << static_cast<int>(one.place) << " "
                  << one.bytes.count << " B, stream " << one.stream << ", pool " << one.pool << " of "
                  << one.pool_size.count << " B, by '" << name(one.source) << "'\n";
    std::map<std::pair<bool, MemoryPlace>, int> places;
    for (const Allocation& one : recording.allocations)
        if (one.bytes == 4_MiB) ++places[{one.release, one.place}];
    for (const bool release : {false, true}) {
        EXPECT_GE((places[{release, MemoryPlace::device}]), 2) << release;  // by itself and from the pool
        EXPECT_GE((places[{release, MemoryPlace::pinned}]), 1) << release;
    }
    std::map<PoolChange, int> pools;
    for (const PoolEvent& pool : recording.pools) ++pools[pool.change];
    EXPECT_GE(pools[PoolChange::made], 1);
    EXPECT_GE(pools[PoolChange::trimmed], 1);
    EXPECT_GE(pools[PoolChange::destroyed], 1);

    EXPECT_GE(recording.events.size(), 1U);
    std::map<WaitKind, int> waits;
    for (const Wait& wait : recording.waits) ++waits[wait.kind];
    EXPECT_GE(waits[WaitKind::event], 1);
    EXPECT_GE(waits[WaitKind::stream_for_event], 1);
    EXPECT_GE(waits[WaitKind::stream], 1);
    EXPECT_GE(waits[WaitKind::context], 1);

    std::map<std::string, NvtxRange> ranges;
    for (const NvtxRange& range : recording.ranges) {
        ranges[name(range.name)] = range;
        std::cout << "  range '" << name(range.name) << "' domain '" << name(range.domain) << "' thread "
                  << range.thread << ": " << (range.end - range.start).count() << " ns\n";
    }
    for (const char* wanted : {"pushed", "started", "in a domain"}) {
        ASSERT_TRUE(ranges.contains(wanted)) << wanted;
        EXPECT_GT(ranges[wanted].end, ranges[wanted].start);
        EXPECT_NE(ranges[wanted].end, kStillOpen);
    }
    EXPECT_EQ(name(ranges["in a domain"].domain), "stowage test");
    EXPECT_EQ(name(ranges["pushed"].domain), "");
    ASSERT_EQ(recording.marks.size(), 1U);
    EXPECT_EQ(name(recording.marks[0].name), "marked");
    EXPECT_EQ(recording.marks[0].thread, ranges["pushed"].thread);
    EXPECT_EQ(recording.calls.at(0).thread, ranges["pushed"].thread);  // both are the system's numbers
    EXPECT_GE(recording.nodes.size(), 6U);                             // of the graph and of what runs
    EXPECT_EQ(recording.nodes.at(0).thread, ranges["pushed"].thread);
    EXPECT_EQ(recording.dropped, 0U);
    EXPECT_EQ(recording.untimed, 0U);
    EXPECT_TRUE(doubts_about(recording).empty());
}

// 20,000 kernels one by one and 100 launches of a graph of 200: as many records, in buffers of some 38,000.
TEST_F(KindsOnDevice, NothingIsLost) {
    const executor::GraphExec exec = captured(200);
    recorder_->start();
    for (int i = 0; i < 20'000; ++i) busy(1);
    for (int i = 0; i < 100; ++i) exec.launch(stream_->ref());
    const Recording recording = stopped();
    print(recording);
    std::size_t nodes = 0;
    for (const Activity& activity : recording.activities) nodes += activity.graph_node == 0 ? 0 : 1;
    EXPECT_EQ(nodes, 20'000U);
    EXPECT_EQ(recording.activities.size() - nodes, 20'000U);
    EXPECT_EQ(recording.dropped, 0U);
    EXPECT_EQ(recording.untimed, 0U);
    EXPECT_EQ(recording.foreign_buffers, 0U);
    EXPECT_TRUE(doubts_about(recording).empty());
}

TEST_F(KindsOnDevice, RangesSayWhoseWorkItWas) {
    recorder_->start();
    nvtxRangePushA("stowage:phase=forward;layer=3");
    nvtxRangePushA("stowage:module=core_attn");
    busy();
    executor::Capture capture(stream_->ref());
    busy();
    nvtxRangePop();
    busy();
    nvtxRangePop();
    const executor::GraphExec exec(capture.finish());
    exec.launch(stream_->ref());  // outside of all ranges
    const std::vector<RawStep> steps = steps_by_ranges(stopped());
    ASSERT_EQ(steps.size(), 1U);
    EXPECT_TRUE(steps[0].graphs);
    const Recording& recording = steps[0].activities;
    std::vector<Mark> marks;
    for (const Activity& activity : recording.activities) {
        const OperationNumber number =
            activity.graph_node == 0 ? activity.issued_under : recording.node_operations.at(activity.graph_node);
        marks.push_back(steps[0].marks.at(number));
        std::cout << "  node " << activity.graph_node << ": " << text_of(marks.back()) << "\n";
    }
    ASSERT_EQ(marks.size(), 3U);  // one stream: in the order in which they ran
    EXPECT_EQ(text_of(marks[0]), "stowage:module=core_attn;phase=forward;layer=3");
    EXPECT_EQ(text_of(marks[1]), "stowage:module=core_attn;phase=forward;layer=3");
    EXPECT_EQ(text_of(marks[2]), "stowage:phase=forward;layer=3");
}

// Recording again, by the same recorder and by another one: launches of graphs keep their own correlations.
TEST_F(KindsOnDevice, CanBeStartedAgain) {
    const executor::GraphExec exec = captured(5);
    const auto launches = [&](const Recording& recording) {
        std::map<std::uint32_t, int> nodes;
        for (const Activity& activity : recording.activities) ++nodes[activity.correlation];
        std::map<std::uint32_t, std::string> names;
        for (const Call& call : recording.calls) names.try_emplace(call.correlation, recording.names.at(call.name));
        int matched = 0;
        for (const auto& [correlation, count] : nodes) {
            std::cout << "  correlation " << correlation << ": " << count << " activities, call '"
                      << (names.contains(correlation) ? names[correlation] : "none") << "'\n";
            if (count == 5 && names.contains(correlation)) ++matched;
        }
        return matched;
    };
    for (int session = 0; session < 3; ++session) {
        if (session == 2) {
            recorder_.reset();
            RecorderOptions options;
            options.kinds = RecordKinds::all();
            recorder_ = std::make_unique<ActivityRecorder>(api_, options);
        }
        recorder_->start();
        exec.launch(stream_->ref());
        exec.launch(stream_->ref());
        std::cout << "session " << session << "\n";
        EXPECT_EQ(launches(stopped()), 2) << session;
    }
}

// What is left of CUPTI after it is taken out of the process is nothing, and it can come back.
TEST_F(KindsOnDevice, CuptiCanLeaveAndComeBack) {
    const executor::GraphExec exec = captured(5);
    for (int round = 0; round < 2; ++round) {
        recorder_.reset();
        RecorderOptions options;
        options.detach = true;
        recorder_ = std::make_unique<ActivityRecorder>(api_, options);
        recorder_->start();
        busy();
        exec.launch(stream_->ref());
        const Recording recording = stopped();
        print(recording);
        EXPECT_EQ(recording.activities.size(), 6U) << round;
        recorder_.reset();
        exec.launch(stream_->ref());
        busy();
        check(cudaDeviceSynchronize(), "waiting for the device without CUPTI");
    }
}

}  // namespace
}  // namespace stowage::profiler
