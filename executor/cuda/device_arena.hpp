#pragma once

#include <cstddef>

#include "executor/cuda/unique_handle.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::executor {

struct DeviceMemoryTraits {
    static cudaError_t release(void* memory) { return cudaFree(memory); }
    static constexpr const char* kName = "device memory";
};

/// Device memory in one piece, on the device that was current when it was made. Freeing waits for the device.
class DeviceBuffer {
public:
    /// Empty.
    DeviceBuffer() = default;
    /// Contents are undefined. No bytes make an empty buffer.
    /// Throws: DeviceError with what was asked for, what is free and what the device has, if there is no room.
    explicit DeviceBuffer(types::Bytes size);
    /// Owns what cudaMalloc gave to somebody else.
    static DeviceBuffer take_over(void* memory, types::Bytes size);
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
    [[nodiscard]] types::Bytes size() const { return data() == nullptr ? types::Bytes{} : size_; }

private:
    UniqueHandle<void*, DeviceMemoryTraits> handle_;
    types::Bytes size_;
};

/// What the driver has of the current device's memory: for everybody, not for this process alone.
struct MemoryRoom {
    types::Bytes free;
    types::Bytes total;
};
/// Throws: DeviceError.
MemoryRoom device_memory_room();

/// The end of a message of memory that could not be had: "asked for 2048.0 MiB, free 100.0 MiB of 143167.0 MiB".
std::string device_shortage(types::Bytes asked, MemoryRoom room);

}  // namespace stowage::executor
