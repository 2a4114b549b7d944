#include "executor/engine/step_memory.hpp"

#include <algorithm>
#include <utility>

#include "executor/engine/out_of_memory.hpp"
#include "planner/memory/graph_registry.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

constexpr memory::PoolId kGraphPool{1};

/// Graphs are captured on a stream of their own, which owns the memory that their main stream takes.
memory::Stream memory_stream(program::Stream stream, bool capturing) {
    return static_cast<memory::Stream>(capturing && stream == program::Stream::main ? program::Stream::capture
                                                                                    : stream);
}

class CachingMemory final : public StepMemory {
public:
    CachingMemory(const memory::AllocatorConfig& config, memory::DeviceMemory& device, memory::StreamEvents& events)
        : allocator_(config, device, events) {}

    void begin(program::RunStage /*stage*/) override {
        allocator_.reset_peaks();
        calls_before_ = calls();
    }

    Buffer allocate(Bytes bytes, program::Stream stream) override {
        const auto block = allocator_.allocate(bytes, memory_stream(stream, capturing_));
        if (!block)
            throw OutOfMemory("device memory", bytes, allocator_.stats().allocated, allocator_.stats().reserved);
        return {allocator_.place(*block).address, bytes, static_cast<std::uint32_t>(*block)};
    }

    void free(const Buffer& buffer) override { allocator_.free(static_cast<memory::BlockHandle>(buffer.handle)); }

    void record_stream(const Buffer& buffer, program::Stream stream) override {
        allocator_.record_stream(static_cast<memory::BlockHandle>(buffer.handle), memory_stream(stream, capturing_));
    }

    void empty_cache() override { allocator_.empty_cache(); }

    void begin_capture() override {
        if (!graphs_.enter(allocator_, kGraphPool, static_cast<memory::Stream>(program::Stream::capture)))
            throw OutOfMemory("device memory for a graph", memory::GraphRegistry::kGeneratorTensor,
                              allocator_.stats().allocated, allocator_.stats().reserved);
        for (const program::Stream stream : {program::Stream::d2h, program::Stream::h2d})
            allocator_.join_capture(kGraphPool, static_cast<memory::Stream>(stream));
        capturing_ = true;
    }

    void end_capture() override {
        graphs_.leave(allocator_, kGraphPool);
        capturing_ = false;
    }

    [[nodiscard]] MemoryCounts counts() const override {
        const memory::AllocatorStats& stats = allocator_.stats();
        return {stats.peak_allocated, stats.peak_reserved, stats.allocated, stats.reserved, calls() - calls_before_};
    }

private:
    [[nodiscard]] std::int64_t calls() const {
        return allocator_.stats().device_allocations + allocator_.stats().device_frees;
    }

    memory::CachingAllocator allocator_;
    memory::GraphRegistry graphs_;
    bool capturing_ = false;
    std::int64_t calls_before_ = 0;
};

class PlannedStepMemory final : public StepMemory {
public:
    PlannedStepMemory(memory::PlannedMemory plan, Address base) : plan_(std::move(plan)), base_(base) {}

    void begin(program::RunStage stage) override {
        stage_ = stage;
        next_ = 0;
        peak_ = allocated_;
    }

    Buffer allocate(Bytes bytes, program::Stream /*stream*/) override {
        const std::int64_t offset = plan_.offset(stage_, next_++);
        STOWAGE_CHECK(offset != memory::PlannedMemory::kNowhere, "an allocation of a stage that is not planned");
        allocated_ += bytes;
        peak_ = std::max(peak_, allocated_);
        return {base_ + static_cast<Address>(offset), bytes, 0};
    }

    void free(const Buffer& buffer) override { allocated_ -= buffer.bytes; }

    void record_stream(const Buffer& /*buffer*/, program::Stream /*stream*/) override {}
    void empty_cache() override {}
    void begin_capture() override {}
    void end_capture() override {}

    [[nodiscard]] MemoryCounts counts() const override { return {peak_, plan_.size(), allocated_, plan_.size(), 0}; }

private:
    memory::PlannedMemory plan_;
    Address base_;
    program::RunStage stage_ = program::RunStage::setup;
    std::size_t next_ = 0;
    Bytes allocated_;
    Bytes peak_;
};

}  // namespace

std::unique_ptr<StepMemory> caching_memory(const memory::AllocatorConfig& config, memory::DeviceMemory& device,
                                           memory::StreamEvents& events) {
    return std::make_unique<CachingMemory>(config, device, events);
}

std::unique_ptr<StepMemory> planned_memory(memory::PlannedMemory plan, Address base) {
    return std::make_unique<PlannedStepMemory>(std::move(plan), base);
}

}  // namespace stowage::executor
