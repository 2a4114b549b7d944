// The caching allocator's ways back to the device: when the cache is emptied, when the device has no room, at a reset.

#include <algorithm>

#include "planner/memory/caching_allocator.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {

void CachingAllocator::empty_cache() { release_cached_segments(); }

std::vector<BlockIndex> CachingAllocator::cached_segments() const {
    std::vector<BlockIndex> whole;
    for (const FreeList& list : free_lists_)
        for (const FreeList::Entry& entry : list.entries())
            if (config_.expandable_segments ? whole_granules_of(entry.block).size.count > 0
                                            : !blocks_[entry.block].shares_segment())
                whole.push_back(entry.block);
    return whole;
}

void CachingAllocator::release_cached_segments() {
    const bool waits = held_streams_ != 0;
    if (waits) {
        events_->wait_all();
        release_completed();
        STOWAGE_CHECK(held_streams_ == 0, "every event is complete once the device is idle");
    }
    const std::vector<BlockIndex> whole = cached_segments();
    if (!waits && !whole.empty()) events_->wait_all();
    for (const BlockIndex index : whole) {
        if (config_.expandable_segments)
            unmap(index);
        else
            release_segment_of(index);
    }
}

// Only under max_split_size: blocks that are never split are given back before the whole cache is; one that is large
// enough, or else the largest until they add up. Giving memory back waits for the device, but held blocks are looked at
// only in the next allocation.
bool CachingAllocator::release_oversize_blocks(Bytes size, Stream stream, PoolClass pool) {
    if (!config_.limits_splitting()) return false;
    FreeList& list = free_list(stream, pool);
    const Bytes needed = std::max(size, config_.max_split_size);
    if (const std::optional<FreeList::Entry> enough = list.best_fit(needed)) {
        events_->wait_all();
        release_segment_of(enough->block);
        return true;
    }
    Bytes released;
    while (released < needed) {
        const std::optional<FreeList::Entry> largest = list.largest();
        if (!largest || largest->size < config_.max_split_size) return false;
        if (released.count == 0) events_->wait_all();
        release_segment_of(largest->block);
        released += largest->size;
    }
    return true;
}

void CachingAllocator::release_segment_of(BlockIndex index) {
    const Block& block = blocks_[index];
    STOWAGE_CHECK(is_free(index) && !block.shares_segment(), "a segment given back is one free block");
    free_list(block.stream, block.pool).erase(Bytes{block.size}, block.address);
    memory_->release(block.address, Bytes{block.size});
    stats_.reserved -= Bytes{block.size};
    --stats_.segments;
    segments_[block.segment].first = kNoBlock;
    spare_segments_.push_back(block.segment);
    spare_blocks_.push_back(index);
}

void CachingAllocator::reset() {
    for (const Segment& segment : segments_)
        if (segment.first != kNoBlock) {
            if (config_.expandable_segments)
                unmap_segment(segment);
            else
                memory_->release(segment.base, Bytes{segment.size});
        }
    stats_ = AllocatorStats{};
    blocks_.clear();
    spare_blocks_.clear();
    segments_.clear();
    spare_segments_.clear();
    for (FreeList& list : free_lists_) list.clear();
    for (std::vector<BlockIndex>& list : unmapped_) list.clear();
    for (HeldQueue& queue : held_) {
        queue.blocks.clear();
        queue.head = 0;
    }
    held_streams_ = 0;
    next_segment_number_ = 0;
}

void CachingAllocator::reset_peaks() {
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_active = stats_.active;
    stats_.peak_reserved = stats_.reserved;
}

void CachingAllocator::rebind(DeviceMemory& memory, StreamEvents& events) {
    memory_ = &memory;
    events_ = &events;
}

void CachingAllocator::check_invariants() const {
    Totals totals;
    for (std::uint32_t slot = 0; slot < segments_.size(); ++slot)
        if (segments_[slot].first != kNoBlock) check_segment(slot, totals);
    check_lists(totals);
    STOWAGE_CHECK(totals.allocated == stats_.allocated && totals.active == stats_.active &&
                      totals.reserved == stats_.reserved && totals.inactive_split == stats_.inactive_split &&
                      totals.segments == stats_.segments,
                  "totals are the sums of their parts");
}

void CachingAllocator::check_segment(std::uint32_t slot, Totals& totals) const {
    const Segment& segment = segments_[slot];
    totals.segments += config_.expandable_segments ? 0 : 1;
    Address end = segment.base;
    BlockIndex previous = kNoBlock;
    for (BlockIndex index = segment.first; index != kNoBlock; index = blocks_[index].next) {
        const Block& block = blocks_[index];
        STOWAGE_CHECK(block.address == end && block.previous == previous && block.segment == slot,
                      "the blocks of a segment tile it");
        STOWAGE_CHECK(!is_free(index) || !is_free(previous), "free neighbours are merged");
        STOWAGE_CHECK(!is_unmapped(index) || !is_unmapped(previous), "neighbouring holes are merged");
        end += static_cast<Address>(block.size);
        previous = index;
        add_to(totals, index);
    }
    STOWAGE_CHECK(end == segment.base + static_cast<Address>(segment.size), "the blocks of a segment fill it");
}

void CachingAllocator::add_to(Totals& totals, BlockIndex index) const {
    if (is_unmapped(index)) {
        ++totals.holes;
        return;
    }
    const Block& block = blocks_[index];
    const Bytes size{block.size};
    totals.reserved += size;
    if (block.allocated) totals.allocated += size;
    if (!is_free(index)) {
        totals.active += size;
        return;
    }
    ++totals.free_blocks;
    if (block.shares_segment() && !config_.expandable_segments) totals.inactive_split += size;
}

void CachingAllocator::check_lists(const Totals& totals) const {
    std::size_t listed = 0;
    for (const FreeList& list : free_lists_) {
        for (const FreeList::Entry& entry : list.entries()) {
            const Block& block = blocks_[entry.block];
            STOWAGE_CHECK(is_free(entry.block) && block.address == entry.address && block.size == entry.size.count,
                          "what is listed as free is a free block");
            ++listed;
        }
    }
    STOWAGE_CHECK(listed == totals.free_blocks, "every free block is listed");
    std::size_t holes = 0;
    for (const std::vector<BlockIndex>& list : unmapped_) {
        for (const BlockIndex index : list) STOWAGE_CHECK(is_unmapped(index), "what is listed as unmapped is a hole");
        holes += list.size();
    }
    STOWAGE_CHECK(holes == totals.holes, "every hole is listed");
}

}  // namespace stowage::memory
