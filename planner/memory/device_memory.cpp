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
    auto gap = std::find_if(gaps_.begin(), gaps_.end(), [&](const auto& one) { return one.second >= bytes; });
    if (gap == gaps_.end()) {
        const Address whole = (bytes + kChunkStep - 1) / kChunkStep * kChunkStep;
        frontier_ -= whole;
        chunks_.emplace(frontier_, Chunk{whole, 0});
        gap = gaps_.emplace(frontier_, whole).first;
    }
    const auto [base, room] = *gap;
    gaps_.erase(gap);
    if (room > bytes) gaps_.emplace(base + bytes, room - bytes);
    chunk_of(base)->second.in_use += bytes;
    return base;
}

void VirtualDeviceMemory::release(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && size <= reserved_ && !chunks_.empty() && base >= chunks_.begin()->first,
                  "released, not reserved");
    const auto bytes = static_cast<Address>(size.count);
    const auto chunk = chunk_of(base);
    STOWAGE_CHECK(base + bytes <= chunk->first + chunk->second.size && bytes <= chunk->second.in_use,
                  "released, not reserved");
    add_gap(base, base + bytes, *chunk);
    reserved_ -= size;
    chunk->second.in_use -= bytes;
    if (chunk->second.in_use > 0) return;
    gaps_.erase(chunk->first);
    chunks_.erase(chunk);
}

void VirtualDeviceMemory::begin_capture() {
    // What is in use of it, one byte, keeps it.
    if (chunks_.emplace(kCaptureChunk, Chunk{kCaptureChunkSize, 1}).second)
        gaps_.emplace(kCaptureChunk, kCaptureChunkSize);
}

VirtualDeviceMemory::Chunks::iterator VirtualDeviceMemory::chunk_of(Address base) {
    return std::prev(chunks_.upper_bound(base));
}

void VirtualDeviceMemory::add_gap(Address base, Address end, const Chunks::value_type& chunk) {
    auto next = gaps_.lower_bound(base);
    STOWAGE_CHECK(next == gaps_.end() || next->first >= end, "released twice");
    if (next != gaps_.end() && next->first == end && end < chunk.first + chunk.second.size) {
        end += next->second;
        next = gaps_.erase(next);
    }
    if (next != gaps_.begin() && base > chunk.first) {
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

Address VirtualDeviceMemory::reserve_range(Bytes size) {
    STOWAGE_CHECK(size.count > 0, "a range has bytes");
    frontier_ -= static_cast<Address>(size.count);
    return frontier_;
}

void VirtualDeviceMemory::release_range(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && base >= frontier_ && base < kFirstChunk, "released, not reserved");
}

bool VirtualDeviceMemory::map(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && base >= frontier_ && base < kFirstChunk, "mapped, not reserved");
    if (!has_room(size)) return false;
    reserved_ += size;
    return true;
}

void VirtualDeviceMemory::unmap(Address base, Bytes size) {
    STOWAGE_CHECK(size.count > 0 && size <= reserved_ && base >= frontier_, "unmapped, not mapped");
    reserved_ -= size;
}

void VirtualDeviceMemory::reset() {
    reserved_ = Bytes{};
    chunks_.clear();
    chunks_.emplace(kFirstChunk, Chunk{kChunkStep, kTakenOfFirst});
    gaps_.clear();
    gaps_.emplace(kFirstChunk + kTakenOfFirst, kChunkStep - kTakenOfFirst);
    frontier_ = kFirstChunk;
}

}  // namespace stowage::memory
