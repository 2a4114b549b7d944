#include "executor/cuda/event.hpp"

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/graph.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;
using namespace std::chrono_literals;

void copy_to_host(const PinnedBuffer& to, const DeviceBuffer& from, const Stream& stream) {
    check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(from.size().count), cudaMemcpyDeviceToHost,
                          stream.get()),
          "copying to the host");
}

class EventOwner : public support::GpuTest {};

TEST_F(EventOwner, IsDoneBeforeAnythingIsRecorded) { EXPECT_TRUE(Event().is_done()); }

TEST_F(EventOwner, IsDoneOnceItsStreamIs) {
    const Stream stream;
    const Event event;
    event.record(stream.ref());
    event.synchronize();
    EXPECT_TRUE(event.is_done());
}

// 64 MiB at no more than 64 GB/s take at least 1 ms; a second is far beyond any link.
TEST_F(EventOwner, MeasuresWhatLiesBetweenTwo) {
    const DeviceBuffer device(64_MiB);
    const PinnedBuffer host(64_MiB);
    const Stream stream;
    const Event start(EventTiming::on);
    const Event end(EventTiming::on);
    start.record(stream.ref());
    copy_to_host(host, device, stream);
    end.record(stream.ref());
    end.synchronize();
    const types::Nanoseconds took = elapsed(start.ref(), end.ref());
    EXPECT_GT(took, 100us);
    EXPECT_LT(took, 1s);
}

TEST_F(EventOwner, WithoutTimingCannotMeasure) {
    const Stream stream;
    const Event start;
    const Event end;
    start.record(stream.ref());
    end.record(stream.ref());
    stream.synchronize();
    EXPECT_THROW(static_cast<void>(elapsed(start.ref(), end.ref())), DeviceError);
}

TEST_F(EventOwner, OutsideOfACaptureIsRecordedExternallyAsAnyOther) {
    const Stream stream;
    const Event event;
    event.record_external(stream.ref());
    event.make_wait_external(stream.ref());
    stream.synchronize();
    EXPECT_TRUE(event.is_done());
}

// The graph records an external event and then copies 256 MiB, which takes about 5 ms. A stream that waits for the
// event goes on before the graph ends: by the device's own clock at least 1 ms before.
TEST_F(EventOwner, RecordedExternallyInAGraphReleasesWaitersBeforeTheGraphEnds) {
    const DeviceBuffer device(256_MiB);
    const PinnedBuffer host(256_MiB);
    const Stream main;
    const Stream other;
    const Event external;
    Capture capture(main.ref());
    check(cudaMemsetAsync(device.data(), 1, 1024, main.get()), "setting memory");
    external.record_external(main.ref());
    copy_to_host(host, device, main);
    const Graph graph = capture.finish();
    EXPECT_EQ(graph.count_nodes(), (GraphNodeCounts{.memcpys = 1, .memsets = 1, .event_records = 1}));
    const GraphExec exec(graph);
    exec.upload(main.ref());

    const Event released(EventTiming::on);
    const Event ended(EventTiming::on);
    exec.launch(main.ref());
    external.make_wait(other.ref());
    released.record(other.ref());
    ended.record(main.ref());
    main.synchronize();
    other.synchronize();
    EXPECT_GT(elapsed(released.ref(), ended.ref()), 1ms);
}

TEST_F(EventOwner, WaitedForExternallyHoldsAGraphBack) {
    const DeviceBuffer device(256_MiB);
    const PinnedBuffer host(256_MiB);
    const Stream main;
    const Stream other;
    const Event external(EventTiming::on);
    Capture capture(main.ref());
    external.make_wait_external(main.ref());
    check(cudaMemsetAsync(device.data(), 1, 1024, main.get()), "setting memory");
    const Graph graph = capture.finish();
    EXPECT_EQ(graph.count_nodes(), (GraphNodeCounts{.memsets = 1, .event_waits = 1}));
    const GraphExec exec(graph);

    const Event ended(EventTiming::on);
    copy_to_host(host, device, other);
    external.record(other.ref());
    exec.launch(main.ref());
    ended.record(main.ref());
    main.synchronize();
    EXPECT_TRUE(external.is_done());
    EXPECT_GE(elapsed(external.ref(), ended.ref()), 0ns);
}

}  // namespace
}  // namespace stowage::executor
