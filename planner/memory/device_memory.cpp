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
    const Address base = size < kLarge ? reserve_small(bytes) : reserve_large(bytes);
    if (base < kBoundary) chunk_of(base)->second.in_use += bytes;
    return base;
}

void VirtualDeviceMemory::release(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && size <= reserved_ && base >= large_frontier_, "released, not reserved");
    const auto bytes = static_cast<Address>(size.count);
    if (base >= kArena) {
        STOWAGE_CHECK(base + bytes <= kArena + kArenaSize, "released, not reserved");
        add_gap(base, base + bytes, kArena, kArena + kArenaSize);
    } else if (base >= kBoundary) {
        STOWAGE_CHECK(base + bytes <= small_frontier_, "released, not reserved");
        add_gap(base, base + bytes, kBoundary, small_frontier_);
        const auto top = gaps_.lower_bound(kArena);
        if (top != gaps_.begin() && std::prev(top)->first + std::prev(top)->second == small_frontier_) {
            small_frontier_ = std::prev(top)->first;
            gaps_.erase(std::prev(top));
        }
    } else {
        const auto chunk = chunk_of(base);
        const Address end = chunk->first + chunk->second.size;
        STOWAGE_CHECK(base + bytes <= end && chunk->second.in_use >= bytes, "released, not reserved");
        add_gap(base, base + bytes, chunk->first, end);
        chunk->second.in_use -= bytes;
        if (chunk->second.in_use == 0) {
            gaps_.erase(chunk->first);
            chunks_.erase(chunk);
        }
    }
    reserved_ -= size;
}

void VirtualDeviceMemory::begin_capture() {
    if (has_arena_) return;
    has_arena_ = true;
    gaps_.emplace(kArena, kArenaSize);
}

std::map<Address, VirtualDeviceMemory::Chunk>::iterator VirtualDeviceMemory::chunk_of(Address base) {
    const auto above = chunks_.upper_bound(base);
    STOWAGE_CHECK(above != chunks_.begin(), "released, not reserved");
    return std::prev(above);
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
    for (auto gap = gaps_.begin(); gap != gaps_.end() && gap->first < kArena; ++gap)
        if (gap->second >= size) return take(gap, size);
    small_frontier_ += size;
    return small_frontier_ - size;
}

Address VirtualDeviceMemory::reserve_large(Address size) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap)
        if (gap->second >= size && (gap->first < kBoundary || gap->first >= kArena)) return take(gap, size);
    const Address whole = (size + kChunkStep - 1) / kChunkStep * kChunkStep;
    large_frontier_ -= whole;
    chunks_.emplace(large_frontier_, Chunk{whole, 0});
    if (whole > size) gaps_.emplace(large_frontier_ + size, whole - size);
    return large_frontier_;
}

Address VirtualDeviceMemory::take(Gaps::iterator gap, Address size) {
    const auto [base, room] = *gap;
    gaps_.erase(gap);
    if (room > size) gaps_.emplace(base + size, room - size);
    return base;
}

/// Joins the gaps that it touches between `lowest` and `highest`.
void VirtualDeviceMemory::add_gap(Address base, Address end, Address lowest, Address highest) {
    auto next = gaps_.lower_bound(base);
    STOWAGE_CHECK(next == gaps_.end() || next->first >= end, "released twice");
    if (next != gaps_.end() && next->first == end && end < highest) {
        end += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && base > lowest) {
        const auto previous = std::prev(next);
        const Address previous_end = previous->first + previous->second;
        STOWAGE_CHECK(previous_end <= base, "released twice");
        if (previous_end == base) {
            base = previous->first;
            gaps_.erase(previous);
        }
    }
    gaps_.emplace(base, end - base);
}

void VirtualDeviceMemory::reset() {
    reserved_ = Bytes{};
    gaps_.clear();
    chunks_.clear();
    has_arena_ = false;
    small_frontier_ = kBoundary;
    large_frontier_ = kBoundary;
}

}  // namespace stowage::memory
