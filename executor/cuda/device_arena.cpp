#include "executor/cuda/device_arena.hpp"

#include <fmt/format.h>

#include "scenarios/types/check.hpp"

namespace stowage::executor {

DeviceBuffer::DeviceBuffer(types::Bytes size) : size_(size) {
    STOWAGE_CHECK(size.count >= 0, "a buffer has a size");
    if (size.count == 0) return;
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, static_cast<std::size_t>(size.count));
    if (code == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        throw DeviceError(failure_message(code, "allocating device memory", std::source_location::current(),
                                          device_shortage(size, device_memory_room())));
    }
    check(code, "allocating device memory");
    handle_ = UniqueHandle<void*, DeviceMemoryTraits>(memory);
}

DeviceBuffer DeviceBuffer::take_over(void* memory, types::Bytes size) {
    DeviceBuffer buffer;
    buffer.handle_ = UniqueHandle<void*, DeviceMemoryTraits>(memory);
    buffer.size_ = size;
    return buffer;
}

MemoryRoom device_memory_room() {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for the room of device memory");
    return {.free = types::Bytes{static_cast<std::int64_t>(free)},
            .total = types::Bytes{static_cast<std::int64_t>(total)}};
}

std::string device_shortage(types::Bytes asked, MemoryRoom room) {
    return fmt::format("asked for {:.1f} MiB, free {:.1f} MiB of {:.1f} MiB", types::in_mib(asked),
                       types::in_mib(room.free), types::in_mib(room.total));
}

}  // namespace stowage::executor
