// What must hold of the caching allocator's books between any two calls.

#include "planner/memory/caching_allocator.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {

void CachingAllocator::check_invariants() const {
    Totals totals;
    totals.pool_segments.resize(pools_.size());
    for (std::uint32_t slot = 0; slot < segments_.size(); ++slot)
        if (segments_[slot].first != kNoBlock) check_segment(slot, totals);
    check_lists(totals);
    check_held(totals);
    check_pools(totals);
    check_totals(totals);
}

void CachingAllocator::check_segment(std::uint32_t slot, Totals& totals) const {
    const Segment& segment = segments_[slot];
    totals.segments += config_.expandable_segments ? 0 : 1;
    const CacheIndex cache = blocks_[segment.first].cache;
    if (caches_[cache].owner != kDefaultPool) ++totals.pool_segments[caches_[cache].owner];
    Address end = segment.base;
    BlockIndex previous = kNoBlock;
    for (BlockIndex index = segment.first; index != kNoBlock; index = blocks_[index].next) {
        const Block& block = blocks_[index];
        STOWAGE_CHECK(block.address == end && block.previous == previous && block.segment == slot,
                      "the blocks of a segment tile it");
        STOWAGE_CHECK(block.size > 0 && block.address % static_cast<Address>(kMinBlock.count) == 0,
                      "blocks begin at multiples of 512 bytes");
        STOWAGE_CHECK(block.cache == cache && block.pool == caches_[cache].pool,
                      "the blocks of a segment are of one stream, class and pool");
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
    if (block.allocated) {
        totals.allocated += size;
        ++totals.allocated_blocks;
        STOWAGE_CHECK(block.pending_events == 0, "a live block waits for nothing");
    }
    if (!is_free(index)) {
        totals.active += size;
        totals.requested += Bytes{block.requested};
        ++totals.active_blocks;
        STOWAGE_CHECK(block.requested > 0 && block.requested <= block.size, "a block holds what was asked for");
        if (block.pending_events == kDeferred) ++totals.deferred;
        if (block.pending_events != kDeferred) totals.held_events += block.pending_events;
        return;
    }
    STOWAGE_CHECK(block.used_by == 0, "no stream uses a free block");
    ++totals.free_blocks;
    if (!block.shares_segment() || config_.expandable_segments) return;
    totals.inactive_split += size;
    ++totals.split_blocks;
}

void CachingAllocator::check_lists(const Totals& totals) const {
    std::size_t listed = 0;
    std::size_t holes = 0;
    for (std::size_t cache = 0; cache < caches_.size(); ++cache) {
        for (const FreeList::Entry& entry : caches_[cache].free.entries()) {
            const Block& block = blocks_[entry.block];
            STOWAGE_CHECK(is_free(entry.block) && block.cache == cache && block.address == entry.address &&
                              block.size == entry.size.count,
                          "what is listed as free is a free block");
            ++listed;
        }
        for (const BlockIndex index : caches_[cache].holes)
            STOWAGE_CHECK(is_unmapped(index) && blocks_[index].cache == cache, "what is listed as unmapped is a hole");
        holes += caches_[cache].holes.size();
    }
    STOWAGE_CHECK(listed == totals.free_blocks, "every free block is listed");
    STOWAGE_CHECK(holes == totals.holes, "every hole is listed");
}

void CachingAllocator::check_held(const Totals& totals) const {
    std::size_t held = 0;
    for (std::size_t stream = 0; stream < held_.size(); ++stream) {
        const std::size_t waiting = held_[stream].blocks.size() - held_[stream].head;
        STOWAGE_CHECK(waiting == 0 || (held_streams_ >> stream & 1) != 0, "a stream that holds blocks is known to");
        held += waiting;
    }
    STOWAGE_CHECK(held == totals.held_events, "every event of a held block is waited for");
    for (const DeferredBlock& deferred : deferred_)
        STOWAGE_CHECK(blocks_[deferred.block].pending_events == kDeferred, "a deferred block is marked as such");
    STOWAGE_CHECK(deferred_.size() == totals.deferred, "every deferred block is listed");
}

void CachingAllocator::check_pools(const Totals& totals) const {
    std::int64_t captures = 0;
    for (std::size_t slot = 0; slot < pools_.size(); ++slot) {
        const PrivatePool& pool = pools_[slot];
        STOWAGE_CHECK(pool.segments == totals.pool_segments[slot], "a pool knows how many segments it has");
        STOWAGE_CHECK(pool.known || (pool.segments == 0 && pool.caches.empty()), "a forgotten pool has nothing");
        STOWAGE_CHECK(!pool.capturing || pool.graphs > 0, "a capture counts as a graph");
        captures += pool.capturing ? 1 : 0;
        for (const CacheIndex cache : pool.caches)
            STOWAGE_CHECK(caches_[cache].owner == slot, "a pool's caches are its own");
    }
    STOWAGE_CHECK(captures == captures_, "the captures under way are counted");
    for (std::size_t stream = 0; stream < owners_.size(); ++stream) {
        const PoolSlot owner = owners_[stream];
        STOWAGE_CHECK(owner == kDefaultPool || (pools_[owner].streams >> stream & 1) != 0,
                      "a stream allocates from the pool of its capture");
        for (const CacheIndex cache : routes_[stream])
            STOWAGE_CHECK(cache == kNoCache || (caches_[cache].owner == owner && caches_[cache].stream == stream),
                          "a stream allocates from its own blocks");
    }
}

void CachingAllocator::check_totals(const Totals& totals) const {
    STOWAGE_CHECK(totals.allocated == stats_.allocated && totals.active == stats_.active &&
                      totals.reserved == stats_.reserved && totals.inactive_split == stats_.inactive_split &&
                      totals.segments == stats_.segments,
                  "totals are the sums of their parts");
    const MemoryStatistics counted = statistics();
    STOWAGE_CHECK(counted.allocated_bytes.all.current == totals.allocated.count &&
                      counted.allocation.all.current == totals.allocated_blocks &&
                      counted.active_bytes.all.current == totals.active.count &&
                      counted.active.all.current == totals.active_blocks &&
                      counted.requested_bytes.all.current == totals.requested.count &&
                      counted.inactive_split_bytes.all.current == totals.inactive_split.count &&
                      counted.inactive_split.all.current == totals.split_blocks &&
                      counted.reserved_bytes.all.current == totals.reserved.count &&
                      counted.segment.all.current == totals.segments,
                  "statistics are the sums of their parts");
    STOWAGE_CHECK(counted.allocated_bytes.all.peak == stats_.peak_allocated.count &&
                      counted.active_bytes.all.peak == stats_.peak_active.count &&
                      counted.reserved_bytes.all.peak == stats_.peak_reserved.count,
                  "peaks are the same in both");
    // The granules of an expandable segment may go beyond what is allowed by less than one.
    STOWAGE_CHECK(config_.expandable_segments || totals.reserved <= allowed_, "no more is reserved than is allowed");
}

}  // namespace stowage::memory
