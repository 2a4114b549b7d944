#include "executor/engine/fenced_memory.hpp"

#include <utility>

namespace stowage::executor {
namespace {

class FencedMemory final : public StepMemory {
public:
    explicit FencedMemory(std::unique_ptr<StepMemory> memory) : memory_(std::move(memory)) {}

    void begin(program::RunStage stage) override { memory_->begin(stage); }
    Buffer allocate(Bytes bytes, program::Stream stream) override {
        Buffer buffer = memory_->allocate(kFence + bytes + kFence, stream);
        buffer.address += static_cast<Address>(kFence.count);
        buffer.bytes = bytes;
        return buffer;
    }
    void free(const Buffer& buffer) override { memory_->free(whole(buffer)); }
    void record_stream(const Buffer& buffer, program::Stream stream) override {
        memory_->record_stream(whole(buffer), stream);
    }
    void empty_cache() override { memory_->empty_cache(); }
    void begin_capture() override { memory_->begin_capture(); }
    void end_capture() override { memory_->end_capture(); }
    [[nodiscard]] MemoryCounts counts() const override { return memory_->counts(); }

private:
    static Buffer whole(const Buffer& buffer) {
        return {buffer.address - static_cast<Address>(kFence.count), kFence + buffer.bytes + kFence, buffer.handle};
    }

    std::unique_ptr<StepMemory> memory_;
};

}  // namespace

std::unique_ptr<StepMemory> fenced_memory(std::unique_ptr<StepMemory> memory) {
    return std::make_unique<FencedMemory>(std::move(memory));
}

}  // namespace stowage::executor
