#include "executor/cuda/pinned_arena.hpp"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>

#include "executor/cuda/numa.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

std::string current_bus_id() {
    int device = 0;
    check(cudaGetDevice(&device), "asking for the current device");
    std::array<char, 32> bus_id{};
    check(cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device),
          "asking for the bus address of a device");
    return bus_id.data();
}

std::string host_shortage(types::Bytes asked) {
    const std::optional<types::Bytes> available = available_host_memory();
    const std::string has = available ? fmt::format("{:.1f} MiB", types::in_mib(*available)) : "an unknown amount";
    return fmt::format("asked for {:.1f} MiB of pinned memory, the host has {} available", types::in_mib(asked), has);
}

void* allocate_pinned(types::Bytes size) {
    void* memory = nullptr;
    const cudaError_t code = cudaHostAlloc(&memory, static_cast<std::size_t>(size.count), cudaHostAllocDefault);
    if (code == cudaSuccess) return memory;
    static_cast<void>(cudaGetLastError());
    throw DeviceError(
        failure_message(code, "allocating pinned host memory", std::source_location::current(), host_shortage(size)));
}

}  // namespace

PinnedBuffer::PinnedBuffer(types::Bytes size, PinnedPlacement placement) : size_(size) {
    STOWAGE_CHECK(size.count >= 0, "a buffer has a size");
    if (size.count == 0) return;
    if (placement == PinnedPlacement::anywhere) {
        allocate();
        return;
    }
    const std::optional<int> node = numa_node_of_pci(current_bus_id());
    if (!node) {
        placement_ = "anywhere: the system names no NUMA node for the device";
        allocate();
        return;
    }
    const PreferNumaNode preference(*node);
    placement_ = preference.refusal().empty()
                     ? fmt::format("NUMA node {}, that of the device", *node)
                     : fmt::format("anywhere: NUMA node {} was refused: {}", *node, preference.refusal());
    allocate();
}

void PinnedBuffer::allocate() {
    handle_ = UniqueHandle<void*, PinnedMemoryTraits>(allocate_pinned(size_));
    std::memset(handle_.get(), 0, static_cast<std::size_t>(size_.count));
}

}  // namespace stowage::executor
