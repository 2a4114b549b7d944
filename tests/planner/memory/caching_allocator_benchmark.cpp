// Time of one operation of the allocator; items are allocations and frees.

#include <benchmark/benchmark.h>

#include <vector>

#include "planner/memory/caching_allocator.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

/// Everything is complete at once.
class IdleEvents final : public StreamEvents {
public:
    EventHandle record(Stream) override { return EventHandle{0}; }
    bool completed(EventHandle) override { return true; }
    void wait_all() override {}
};

struct Machine {
    VirtualDeviceMemory memory;
    IdleEvents events;
    CachingAllocator allocator{AllocatorConfig{}, memory, events};
};

/// One size again and again, with `range(0)` other free blocks of other sizes around.
void reuse_of_one_size(benchmark::State& state) {
    Machine machine;
    std::vector<BlockHandle> others;
    for (std::int64_t i = 0; i < state.range(0); ++i)
        others.push_back(*machine.allocator.allocate(Bytes{(20 + 2 * i) << 20}, 0));
    for (const BlockHandle block : others) machine.allocator.free(block);
    for (auto _ : state) machine.allocator.free(*machine.allocator.allocate(24_MiB, 0));
    state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(reuse_of_one_size)->Arg(4)->Arg(64);

/// The forward and backward of one microbatch: `range(0)` layers of tensors saved in order and freed against it.
void step_of_layers(benchmark::State& state) {
    Machine machine;
    const std::vector<Bytes> saved = {16_KiB, 64_MiB, 96_MiB, 1_MiB, 64_MiB, 32_MiB, 3_MiB, 128_MiB};
    std::vector<BlockHandle> live;
    for (auto _ : state) {
        for (std::int64_t layer = 0; layer < state.range(0); ++layer) {
            for (const Bytes size : saved) {
                const BlockHandle temporary = *machine.allocator.allocate(size, 0);
                live.push_back(*machine.allocator.allocate(size, 0));
                machine.allocator.free(temporary);
            }
        }
        for (; !live.empty(); live.pop_back()) machine.allocator.free(live.back());
    }
    state.SetItemsProcessed(4 * state.iterations() * state.range(0) * static_cast<std::int64_t>(saved.size()));
}
BENCHMARK(step_of_layers)->Arg(4)->Arg(64)->Arg(512);

/// Blocks that another stream has used: held by an event, looked at in the next allocation.
void reuse_across_streams(benchmark::State& state) {
    Machine machine;
    for (auto _ : state) {
        const BlockHandle block = *machine.allocator.allocate(24_MiB, 0);
        machine.allocator.record_stream(block, 1);
        machine.allocator.free(block);
    }
    state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(reuse_across_streams);

/// A copy and a reset, as a search makes them: blocks of 512 layers live.
void copy_of_an_allocator(benchmark::State& state) {
    Machine machine;
    for (int i = 0; i < 4096; ++i) machine.allocator.allocate(Bytes{(1 + i % 8) << 22}, 0);
    for (auto _ : state) {
        CachingAllocator copy = machine.allocator;
        benchmark::DoNotOptimize(copy);
    }
}
BENCHMARK(copy_of_an_allocator);

}  // namespace
}  // namespace stowage::memory

BENCHMARK_MAIN();
