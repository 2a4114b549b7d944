#include "planner/memory/device_memory.hpp"

#include <algorithm>
#include <iterator>

#include "scenarios/types/check.hpp"

namespace stowage::memory {

std::optional<Address> VirtualDeviceMemory::reserve(Bytes size) {
    STOWAGE_CHECK(size.count > 0, "a segment has bytes");
    if (!has_room(size)) return std::nullopt;
    reserved_ += size;
    const auto bytes = static_cast<Address>(size.count);
    if (size < kLarge) return reserve_small(bytes);
    large_frontier_ -= bytes;
    return large_frontier_;
}

void VirtualDeviceMemory::release(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && size <= reserved_ && base >= large_frontier_, "released, not reserved");
    reserved_ -= size;
    if (size < kLarge) release_small(base, static_cast<Address>(size.count));
}

Address VirtualDeviceMemory::reserve_range(Bytes size) {
    STOWAGE_CHECK(size.count > 0, "a range has bytes");
    large_frontier_ -= static_cast<Address>(size.count);
    return large_frontier_;
}

void VirtualDeviceMemory::release_range(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && base >= large_frontier_ && base < kBoundary, "released, not reserved");
}

bool VirtualDeviceMemory::map(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && base >= large_frontier_ && base < kBoundary, "mapped, not reserved");
    if (!has_room(size)) return false;
    reserved_ += size;
    return true;
}

void VirtualDeviceMemory::unmap(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && size <= reserved_ && base >= large_frontier_, "unmapped, not mapped");
    reserved_ -= size;
}

Address VirtualDeviceMemory::reserve_small(Address size) {
    const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& one) { return one.second >= size; });
    if (gap == gaps_.end()) {
        small_frontier_ += size;
        return small_frontier_ - size;
    }
    const auto [base, room] = *gap;
    gaps_.erase(gap);
    if (room > size) gaps_.emplace(base + size, room - size);
    return base;
}

void VirtualDeviceMemory::release_small(Address base, Address size) {
    Address end = base + size;
    STOWAGE_CHECK(base >= kBoundary && end <= small_frontier_, "released, not reserved");
    auto next = gaps_.lower_bound(base);
    STOWAGE_CHECK(next == gaps_.end() || next->first >= end, "released twice");
    if (next != gaps_.end() && next->first == end) {
        end += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin()) {
        const auto previous = std::prev(next);
        const Address previous_end = previous->first + previous->second;
        STOWAGE_CHECK(previous_end <= base, "released twice");
        if (previous_end == base) {
            base = previous->first;
            gaps_.erase(previous);
        }
    }
    if (end == small_frontier_)
        small_frontier_ = base;
    else
        gaps_.emplace(base, end - base);
}

void VirtualDeviceMemory::reset() {
    reserved_ = Bytes{};
    gaps_.clear();
    small_frontier_ = kBoundary;
    large_frontier_ = kBoundary;
}

}  // namespace stowage::memory
