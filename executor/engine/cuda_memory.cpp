#include "executor/engine/cuda_memory.hpp"

#include <cuda.h>
#include <fmt/format.h>

#include <utility>

#include "executor/cuda/graph.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::executor {
namespace {

constexpr auto kGranule = static_cast<memory::Address>(CudaDeviceMemory::kGranule);
constexpr unsigned kVersion = 12000;  // of the functions asked for, so that a newer driver gives the same ones

template <class Function>
void find(const char* name, Function*& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check(cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result),
          "looking up the driver's virtual memory");
    if (result != cudaDriverEntryPointSuccess)
        throw types::UnsupportedError(fmt::format("expandable_segments: the driver has no {}", name));
    function = reinterpret_cast<Function*>(found);
}

std::size_t count_of(types::Bytes size) { return static_cast<std::size_t>(size.count); }

}  // namespace

/// The driver's functions for virtual memory; libcuda is not linked.
class CudaDeviceMemory::Driver {
public:
    explicit Driver(int device) {
        find("cuMemAddressReserve", reserve);
        find("cuMemAddressFree", free);
        find("cuMemCreate", create);
        find("cuMemRelease", release);
        find("cuMemMap", map);
        find("cuMemUnmap", unmap);
        find("cuMemSetAccess", set_access);
        find("cuGetErrorName", error_name);
        location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        location.id = device;
    }

    void expect(CUresult code, const char* doing) const {
        if (code == CUDA_SUCCESS) return;
        throw DeviceError(fmt::format("{}, while {}, on {}", name(code), doing, current_device_text()));
    }

    [[nodiscard]] const char* name(CUresult code) const {
        const char* text = nullptr;
        return error_name(code, &text) == CUDA_SUCCESS && text != nullptr ? text : "an unknown error of the driver";
    }

    decltype(&cuMemAddressReserve) reserve = nullptr;
    decltype(&cuMemAddressFree) free = nullptr;
    decltype(&cuMemCreate) create = nullptr;
    decltype(&cuMemRelease) release = nullptr;
    decltype(&cuMemMap) map = nullptr;
    decltype(&cuMemUnmap) unmap = nullptr;
    decltype(&cuMemSetAccess) set_access = nullptr;
    decltype(&cuGetErrorName) error_name = nullptr;
    CUmemLocation location{};
};

CudaDeviceMemory::CudaDeviceMemory() : capacity_(device_memory_room().total) {
    check(cudaGetDevice(&device_), "asking for the current device");
}

CudaDeviceMemory::~CudaDeviceMemory() { release_ranges(); }

std::optional<memory::Address> CudaDeviceMemory::reserve(Bytes size) {
    const OutsideCapture outside;
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, count_of(size));
    if (code == cudaErrorMemoryAllocation) {
        static_cast<void>(cudaGetLastError());
        return std::nullopt;
    }
    check(code, "reserving a segment of device memory");
    const auto base = reinterpret_cast<Address>(memory);
    segments_.emplace(base, DeviceBuffer::take_over(memory, size));
    held_ += size;
    return base;
}

void CudaDeviceMemory::release(Address base, Bytes size) {
    const auto found = segments_.find(base);
    STOWAGE_CHECK(found != segments_.end() && found->second.size() == size, "a segment is given back whole");
    const OutsideCapture outside;
    segments_.erase(found);
    held_ -= size;
}

memory::Address CudaDeviceMemory::reserve_range(Bytes size) {
    const OutsideCapture outside;
    CUdeviceptr base = 0;
    driver().expect(driver().reserve(&base, count_of(size), kGranule, 0, 0), "reserving a range of addresses");
    ranges_.emplace(base, Range{.size = size, .granules = {}});
    return base;
}

void CudaDeviceMemory::release_range(Address base, Bytes size) {
    const auto found = ranges_.find(base);
    STOWAGE_CHECK(found != ranges_.end() && found->second.size == size && found->second.granules.empty(),
                  "a range is given back whole and without memory");
    driver().expect(driver().free(base, count_of(size)), "giving back a range of addresses");
    ranges_.erase(found);
}

bool CudaDeviceMemory::map(Address base, Bytes size) {
    Range& range = range_of(base, size);
    const OutsideCapture outside;
    const Address end = base + static_cast<Address>(size.count);
    for (Address address = base; address < end; address += kGranule) {
        if (map_granule(range, address)) continue;
        unmap_granules(range, base, address);
        return false;
    }
    CUmemAccessDesc access{};
    access.location = driver().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver().expect(driver().set_access(base, count_of(size), &access, 1), "opening mapped memory to the device");
    return true;
}

void CudaDeviceMemory::unmap(Address base, Bytes size) {
    Range& range = range_of(base, size);
    const OutsideCapture outside;
    check(cudaDeviceSynchronize(), "waiting for the device before memory is unmapped");
    unmap_granules(range, base, base + static_cast<Address>(size.count));
}

bool CudaDeviceMemory::map_granule(Range& range, Address address) {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = driver().location;
    CUmemGenericAllocationHandle handle = 0;
    const CUresult created = driver().create(&handle, kGranule, &properties, 0);
    if (created == CUDA_ERROR_OUT_OF_MEMORY) return false;
    driver().expect(created, "taking memory for a range of addresses");
    if (const CUresult mapped = driver().map(address, kGranule, 0, handle, 0); mapped != CUDA_SUCCESS) {
        static_cast<void>(driver().release(handle));
        driver().expect(mapped, "mapping memory into a range of addresses");
    }
    range.granules.emplace(address, handle);
    held_ += Bytes{kGranule};
    return true;
}

void CudaDeviceMemory::unmap_granules(Range& range, Address base, Address end) {
    for (Address address = base; address < end; address += kGranule) {
        const auto found = range.granules.find(address);
        STOWAGE_CHECK(found != range.granules.end(), "what is unmapped was mapped");
        driver().expect(driver().unmap(address, kGranule), "unmapping memory");
        driver().expect(driver().release(found->second), "giving back unmapped memory");
        range.granules.erase(found);
        held_ -= Bytes{kGranule};
    }
}

CudaDeviceMemory::Range& CudaDeviceMemory::range_of(Address address, Bytes size) {
    const auto after = ranges_.upper_bound(address);
    STOWAGE_CHECK(after != ranges_.begin(), "a part of a range is mapped");
    const auto found = std::prev(after);
    const auto offset = static_cast<std::int64_t>(address - found->first);
    STOWAGE_CHECK(
        offset % kGranule == 0 && size.count % kGranule == 0 && offset + size.count <= found->second.size.count,
        "whole granules of one range are mapped");
    return found->second;
}

const CudaDeviceMemory::Driver& CudaDeviceMemory::driver() {
    if (!driver_) driver_ = std::make_unique<Driver>(device_);
    return *driver_;
}

void CudaDeviceMemory::release_ranges() noexcept {
    if (ranges_.empty()) return;
    cudaError_t code = cudaDeviceSynchronize();
    for (const auto& [base, range] : ranges_) {
        for (const auto& [address, handle] : range.granules) {
            if (driver_->unmap(address, kGranule) != CUDA_SUCCESS) code = cudaErrorUnknown;
            if (driver_->release(handle) != CUDA_SUCCESS) code = cudaErrorUnknown;
        }
        if (driver_->free(base, count_of(range.size)) != CUDA_SUCCESS) code = cudaErrorUnknown;
    }
    report_release(code, "the ranges of expandable segments");
}

memory::EventHandle CudaStreamEvents::record(memory::Stream stream) {
    if (spare_.empty()) spare_.emplace_back();
    spare_.back().record(streams_.at(stream));
    recorded_.emplace(next_, std::move(spare_.back()));
    spare_.pop_back();
    return EventHandle{next_++};
}

bool CudaStreamEvents::completed(EventHandle event) {
    const auto number = static_cast<std::uint64_t>(event);
    const auto found = recorded_.find(number);
    STOWAGE_CHECK(found != recorded_.end(), "an event is asked for until it is done");
    const OutsideCapture outside;
    const bool done = found->second.is_done();
    answers_.push_back({.event = number, .done = done});
    if (!done) return false;
    spare_.push_back(std::move(found->second));
    recorded_.erase(found);
    return true;
}

void CudaStreamEvents::wait_all() {
    const OutsideCapture outside;
    check(cudaDeviceSynchronize(), "waiting for the device to be idle");
}

}  // namespace stowage::executor
