#include "executor/engine/cuda_memory.hpp"

#include <array>

#include "executor/cuda/graph.hpp"
#include "executor/cuda/pinned_arena.hpp"
#include "planner/memory/caching_allocator.hpp"
#include "tests/support/gpu_test.hpp"

namespace stowage::executor {
namespace {

using namespace types::literals;

void* pointer(memory::Address address) {
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): addresses are numbers to a planner
}

void set(memory::Address address, types::Bytes size, int value) {
    check(cudaMemset(pointer(address), value, static_cast<std::size_t>(size.count)), "setting memory");
}

int byte_at(memory::Address address) {
    std::array<unsigned char, 1> byte{};
    check(cudaMemcpy(byte.data(), pointer(address), 1, cudaMemcpyDeviceToHost), "reading a byte");
    return byte[0];
}

class CudaMemory : public support::GpuTest {};

TEST_F(CudaMemory, GivesSegmentsThatCanBeWritten) {
    CudaDeviceMemory memory;
    const std::optional<memory::Address> base = memory.reserve(20_MiB);
    ASSERT_TRUE(base.has_value());
    EXPECT_EQ(memory.held(), 20_MiB);
    set(*base, 20_MiB, 5);
    EXPECT_EQ(byte_at(*base + (20U << 20) - 1), 5);
    memory.release(*base, 20_MiB);
    EXPECT_EQ(memory.held(), 0_B);
    EXPECT_THROW(memory.release(*base, 20_MiB), std::logic_error);
}

TEST_F(CudaMemory, AnswersNothingWhereThereIsNoRoom) {
    CudaDeviceMemory memory;
    EXPECT_EQ(memory.reserve(memory.capacity() + 1_GiB), std::nullopt);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_TRUE(memory.reserve(1_MiB).has_value());
}

TEST_F(CudaMemory, ReservesWhileAStreamIsCaptured) {
    CudaDeviceMemory memory;
    const Stream stream;
    Capture capture(stream.ref());
    const std::optional<memory::Address> base = memory.reserve(2_MiB);
    ASSERT_TRUE(base.has_value());
    check(cudaMemsetAsync(pointer(*base), 1, 1024, stream.get()), "setting memory");
    EXPECT_EQ(capture.finish().count_nodes().total(), 1U);
}

TEST_F(CudaMemory, MapsPartsOfARangeAndTakesThemAway) {
    CudaDeviceMemory memory;
    const memory::Address base = memory.reserve_range(64_MiB);
    ASSERT_TRUE(memory.map(base, 4_MiB));
    ASSERT_TRUE(memory.map(base + (4U << 20), 2_MiB));
    EXPECT_EQ(memory.held(), 6_MiB);
    set(base, 6_MiB, 9);  // over the seam
    EXPECT_EQ(byte_at(base + (6U << 20) - 1), 9);
    memory.unmap(base + (2U << 20), 4_MiB);  // across what was mapped at once
    EXPECT_EQ(memory.held(), 2_MiB);
    EXPECT_EQ(byte_at(base), 9);
    EXPECT_THROW(memory.release_range(base, 64_MiB), std::logic_error);
    memory.unmap(base, 2_MiB);
    memory.release_range(base, 64_MiB);
}

TEST_F(CudaMemory, GivesEverythingBackAtItsEnd) {
    const types::Bytes before = device_memory_room().free;
    {
        CudaDeviceMemory memory;
        const memory::Address base = memory.reserve_range(1_GiB);
        ASSERT_TRUE(memory.map(base, 512_MiB));
        ASSERT_TRUE(memory.reserve(512_MiB).has_value());
    }
    // Others may share the device, and the driver keeps a little: what matters is the GiB.
    EXPECT_LT((before - device_memory_room().free).count, (64_MiB).count);
}

class CudaEvents : public support::GpuTest {};

// 256 MiB to the host take about 5 ms, asking takes microseconds.
TEST_F(CudaEvents, AnswerAsTheDeviceDoesAndLogIt) {
    const DeviceBuffer device(256_MiB);
    const PinnedBuffer host(256_MiB);
    const Stream stream;
    CudaStreamEvents events({stream.ref()});
    check(cudaMemcpyAsync(host.data(), device.data(), 256U << 20, cudaMemcpyDeviceToHost, stream.get()), "copying");
    const memory::EventHandle event = events.record(0);
    const bool first = events.completed(event);
    EXPECT_FALSE(first) << "a copy of 256 MiB was done at once";
    events.wait_all();
    ASSERT_TRUE(first || events.completed(event));
    EXPECT_EQ(events.answers(), (std::vector<EventAnswer>{{.event = 0, .done = false}, {.event = 0, .done = true}}));
    EXPECT_THROW(static_cast<void>(events.completed(event)), std::logic_error);
    EXPECT_EQ(events.record(0), memory::EventHandle{1});  // another number, though the event is used again
}

TEST_F(CudaEvents, KnowTheStreamsThatTheyWereGiven) {
    CudaStreamEvents events({StreamRef()});
    EXPECT_THROW(static_cast<void>(events.record(1)), std::out_of_range);
}

// The allocator that the simulator runs, on a device. Two blocks of 8 MiB fit into PyTorch's large segment of 20 MiB.
// The first is freed while a copy of about 5 ms is going on that was said to use it: the second lies behind it, and
// only a third, asked for when the copy is done, lies where the first did.
TEST_F(CudaMemory, CarriesTheCachingAllocator) {
    const DeviceBuffer source(256_MiB);
    const PinnedBuffer host(256_MiB);
    CudaDeviceMemory device;
    const Stream copies;
    CudaStreamEvents events({StreamRef(), copies.ref()});
    memory::CachingAllocator allocator({}, device, events);
    const auto first = allocator.allocate(8_MiB, 0);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(device.held(), 20_MiB);
    const memory::Address address = allocator.place(*first).address;
    set(address, 8_MiB, 7);
    check(cudaMemcpyAsync(host.data(), source.data(), 256U << 20, cudaMemcpyDeviceToHost, copies.get()), "copying");
    allocator.record_stream(*first, 1);
    allocator.free(*first);
    const auto second = allocator.allocate(8_MiB, 0);
    ASSERT_TRUE(second.has_value());
    EXPECT_EQ(allocator.place(*second).address, address + (8U << 20));
    copies.synchronize();
    const auto third = allocator.allocate(8_MiB, 0);
    ASSERT_TRUE(third.has_value());
    EXPECT_EQ(allocator.place(*third).address, address);
    EXPECT_EQ(events.answers(), (std::vector<EventAnswer>{{.event = 0, .done = false}, {.event = 0, .done = true}}));
    EXPECT_EQ(device.held(), 20_MiB);
    allocator.reset();
}

TEST_F(CudaMemory, CarriesExpandableSegments) {
    CudaDeviceMemory device;
    CudaStreamEvents events({StreamRef()});
    memory::AllocatorConfig config;
    config.expandable_segments = true;
    memory::CachingAllocator allocator(config, device, events);
    const auto first = allocator.allocate(8_MiB, 0);
    const auto second = allocator.allocate(30_MiB, 0);  // reaches from the first granule of 20 MiB into the second
    ASSERT_TRUE(first && second);
    EXPECT_EQ(device.held(), 40_MiB);
    set(allocator.place(*second).address, 30_MiB, 3);
    EXPECT_EQ(byte_at(allocator.place(*second).address + (30U << 20) - 1), 3);
    allocator.free(*first);
    allocator.free(*second);
    allocator.empty_cache();
    EXPECT_EQ(device.held(), 0_B);
}

}  // namespace
}  // namespace stowage::executor
