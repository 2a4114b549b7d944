#include "executor/cuda/graph.hpp"

#include <array>
#include <stdexcept>

#include "executor/cuda/device_arena.hpp"
#include "executor/cuda/event.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;

void set(const DeviceBuffer& buffer, int value, const Stream& stream) {
    check(cudaMemsetAsync(buffer.data(), value, static_cast<std::size_t>(buffer.size().count), stream.get()),
          "setting memory");
}

int first_byte(const DeviceBuffer& buffer) {
    std::array<unsigned char, 1> byte{};
    check(cudaMemcpy(byte.data(), buffer.data(), 1, cudaMemcpyDeviceToHost), "reading a byte");
    return byte[0];
}

class CaptureOwner : public support::GpuTest {};

TEST_F(CaptureOwner, RecordsAndDoesNotRun) {
    const DeviceBuffer buffer(1_MiB);
    const Stream stream;
    set(buffer, 1, stream);
    stream.synchronize();
    Capture capture(stream.ref());
    EXPECT_TRUE(stream.ref().is_capturing());
    set(buffer, 2, stream);
    const Graph graph = capture.finish();
    EXPECT_FALSE(stream.ref().is_capturing());
    stream.synchronize();
    EXPECT_EQ(first_byte(buffer), 1);

    const GraphExec exec(graph);
    exec.launch(stream.ref());
    stream.synchronize();
    EXPECT_EQ(first_byte(buffer), 2);
}

// What orders the two streams inside is edges: only the work is nodes.
TEST_F(CaptureOwner, CountsTheNodesOfStreamsThatJoined) {
    const DeviceBuffer from(1_MiB);
    const DeviceBuffer to(1_MiB);
    const Stream main;
    const Stream side;
    const Event fork;
    const Event join;
    Capture capture(main.ref());
    set(from, 1, main);
    fork.record(main.ref());
    fork.make_wait(side.ref());
    check(cudaMemcpyAsync(to.data(), from.data(), 1024, cudaMemcpyDeviceToDevice, side.get()), "copying");
    join.record(side.ref());
    set(from, 2, main);
    join.make_wait(main.ref());
    const Graph graph = capture.finish();
    EXPECT_EQ(graph.count_nodes(), (GraphNodeCounts{.memcpys = 1, .memsets = 2}));
    EXPECT_EQ(graph.count_nodes().total(), 3U);
}

TEST_F(CaptureOwner, LeftByAnExceptionLeavesTheStreamUsable) {
    const DeviceBuffer buffer(1_MiB);
    const Stream stream;
    const auto leave = [&] {
        const Capture capture(stream.ref());
        set(buffer, 3, stream);
        throw std::runtime_error("on the way");
    };
    EXPECT_THROW(leave(), std::runtime_error);
    EXPECT_FALSE(stream.ref().is_capturing());
    set(buffer, 4, stream);
    stream.synchronize();
    EXPECT_EQ(first_byte(buffer), 4);
}

TEST_F(CaptureOwner, IsFinishedOnce) {
    const Stream stream;
    Capture capture(stream.ref());
    static_cast<void>(capture.finish());
    EXPECT_THROW(static_cast<void>(capture.finish()), std::logic_error);
}

std::string failure_of(Capture& capture) {
    try {
        static_cast<void>(capture.finish());
    } catch (const DeviceError& error) {
        return error.what();
    }
    return "";
}

TEST_F(CaptureOwner, SaysThatAStreamWasNotJoinedAndIsOver) {
    const DeviceBuffer buffer(1_MiB);
    const Stream main;
    const Stream side;
    const Event fork;
    {
        Capture capture(main.ref());
        fork.record(main.ref());
        fork.make_wait(side.ref());
        set(buffer, 5, side);
        const std::string failure = failure_of(capture);
        EXPECT_NE(failure.find("cudaErrorStreamCaptureUnjoined"), std::string::npos) << failure;
        EXPECT_NE(failure.find("ending the capture of a stream"), std::string::npos) << failure;
    }
    EXPECT_FALSE(main.ref().is_capturing());
    set(buffer, 6, main);
    main.synchronize();
    EXPECT_EQ(first_byte(buffer), 6);
}

TEST_F(CaptureOwner, IsBrokenByACallThatItDoesNotAllow) {
    const Stream stream;
    Capture capture(stream.ref());
    EXPECT_THROW(stream.synchronize(), DeviceError);
    EXPECT_NE(failure_of(capture), "");
    EXPECT_FALSE(stream.ref().is_capturing());
}

TEST_F(CaptureOwner, LetsMemoryBeAllocatedOutsideOfIt) {
    const Stream stream;
    const DeviceBuffer buffer(1_MiB);
    Capture capture(stream.ref());
    set(buffer, 7, stream);
    {
        const OutsideCapture outside;
        const DeviceBuffer other(4_MiB);
        EXPECT_NE(other.data(), nullptr);
    }
    EXPECT_EQ(capture.finish().count_nodes(), (GraphNodeCounts{.memsets = 1}));
}

class GraphExecOwner : public support::GpuTest {};

TEST_F(GraphExecOwner, OutlivesItsGraphAndIsLaunchedAgain) {
    const DeviceBuffer buffer(1_MiB);
    const Stream stream;
    const GraphExec exec = [&] {
        Capture capture(stream.ref());
        set(buffer, 8, stream);
        return GraphExec(capture.finish());
    }();
    exec.upload(stream.ref());
    for (int launch = 0; launch < 3; ++launch) {
        set(buffer, 0, stream);
        exec.launch(stream.ref());
        stream.synchronize();
        EXPECT_EQ(first_byte(buffer), 8);
    }
}

}  // namespace
}  // namespace stowage::executor
