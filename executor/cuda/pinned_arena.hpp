#pragma once

#include <cstddef>
#include <string>

#include "executor/cuda/unique_handle.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::executor {

struct PinnedMemoryTraits {
    static cudaError_t release(void* memory) { return cudaFreeHost(memory); }
    static constexpr const char* kName = "pinned host memory";
};

enum class PinnedPlacement {
    near_device,  ///< on the NUMA node of the current device, if the system says which and lets us
    anywhere,     ///< where the thread's policy puts it
};

/// Pinned host memory in one piece, every page of it there before the constructor returns.
/// Cost: 0.6 s a GiB to make, 0.1 to 0.16 s a GiB to free (measured): never inside a step.
class PinnedBuffer {
public:
    /// Empty.
    PinnedBuffer() = default;
    /// Contents are zero. No bytes make an empty buffer.
    /// Throws: DeviceError with what was asked for and what the host has available, if there is no room.
    explicit PinnedBuffer(types::Bytes size, PinnedPlacement placement = PinnedPlacement::near_device);
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(handle_.get()); }
    [[nodiscard]] types::Bytes size() const { return data() == nullptr ? types::Bytes{} : size_; }
    /// Where the pages lie, in words for a measurement: "NUMA node 1, that of the device", "anywhere: the system names
    /// no NUMA node for the device".
    [[nodiscard]] const std::string& placement() const { return placement_; }

private:
    void allocate();

    UniqueHandle<void*, PinnedMemoryTraits> handle_;
    types::Bytes size_;
    std::string placement_ = "anywhere";
};

}  // namespace stowage::executor
