// The caching allocator's ways back to the device: when the cache is emptied, when the device has no room, when garbage
// is collected, at a reset.

#include <algorithm>

#include "planner/memory/caching_allocator.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {

void CachingAllocator::empty_cache() { release_cached_segments(); }

bool CachingAllocator::may_release(const Cache& cache) const {
    if (cache.owner == kDefaultPool) return !capturing();
    return pools_[cache.owner].graphs == 0;
}

std::vector<BlockIndex> CachingAllocator::cached_segments() const {
    std::vector<BlockIndex> whole;
    for (const Cache& cache : caches_) {
        if (!may_release(cache)) continue;
        for (const FreeList::Entry& entry : cache.free.entries())
            if (config_.expandable_segments ? whole_granules_of(entry.block).size.count > 0
                                            : !blocks_[entry.block].shares_segment())
                whole.push_back(entry.block);
    }
    return whole;
}

void CachingAllocator::release_cached_segments() {
    bool waits = false;
    if (!capturing()) {
        ++stats_.waits_for_events;
        release_deferred();
        waits = held_streams_ != 0;
    }
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
    forget_empty_pools();
}

// Only under max_split_size: blocks that are never split are given back before the whole cache is; one that is large
// enough, or else the largest until they add up. Giving memory back waits for the device, but held blocks are looked at
// only in the next allocation. What lies in expandable segments is no segment that could be given back.
bool CachingAllocator::release_oversize_blocks(Bytes size, CacheIndex cache) {
    if (!config_.limits_splitting() || config_.expandable_segments) return false;
    FreeList& list = caches_[cache].free;
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

// Above the threshold, whole segments in the large default pool are given back whose age, counted in searches of that
// pool since they became free, is the average or more; again with the average of the rest until enough is gone.
void CachingAllocator::collect_garbage() {
    const Bytes threshold{
        static_cast<std::int64_t>(config_.garbage_collection_threshold * static_cast<double>(allowed_.count))};
    if (stats_.reserved <= threshold || config_.expandable_segments) return;
    const Bytes target = stats_.reserved - threshold;
    std::vector<BlockIndex> whole;
    for (const Cache& cache : caches_)
        if (cache.owner == kDefaultPool && cache.pool == PoolClass::large)
            for (const FreeList::Entry& entry : cache.free.entries())
                if (!blocks_[entry.block].shares_segment()) whole.push_back(entry.block);
    const auto age = [this](BlockIndex index) { return searches_ - listed_at_[index]; };
    std::uint64_t total_age = 0;
    for (const BlockIndex index : whole) total_age += age(index);
    Bytes reclaimed;
    while (reclaimed < target && !whole.empty()) {
        const double average = static_cast<double>(total_age) / static_cast<double>(whole.size());
        const auto young = std::partition(whole.begin(), whole.end(),
                                          [&](BlockIndex index) { return static_cast<double>(age(index)) < average; });
        if (young == whole.end()) return;
        if (reclaimed.count == 0) events_->wait_all();
        for (auto old = young; old != whole.end(); ++old) {
            reclaimed += Bytes{blocks_[*old].size};
            total_age -= age(*old);
            release_segment_of(*old);
        }
        whole.erase(young, whole.end());
    }
}

void CachingAllocator::release_segment_of(BlockIndex index) {
    const Block& block = blocks_[index];
    STOWAGE_CHECK(is_free(index) && !block.shares_segment(), "a segment given back is one free block");
    unlist_free(index);
    memory_->release(block.address, Bytes{block.size});
    --stats_.segments;
    counter_.change_segments(block.pool, -1);
    if (Bytes{block.size} >= config_.max_split_size) counter_.change_oversize_segments(-1);
    count_reserved(block.pool, Bytes{-block.size});
    forget_segment(block.segment, block.cache);
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
    counter_ = StatisticsCounter{};
    blocks_.clear();
    spare_blocks_.clear();
    segments_.clear();
    spare_segments_.clear();
    for (Cache& cache : caches_) {
        cache.free.clear();
        cache.holes.clear();
        if (cache.owner != kDefaultPool) spare_caches_.push_back(static_cast<CacheIndex>(&cache - caches_.data()));
        cache.owner = kDefaultPool;
    }
    routes_ = default_routes_;
    owners_.fill(kDefaultPool);
    pools_.clear();
    for (HeldQueue& queue : held_) {
        queue.blocks.clear();
        queue.head = 0;
    }
    held_streams_ = 0;
    deferred_.clear();
    captures_ = 0;
    next_segment_number_ = 0;
    searches_ = 0;
}

void CachingAllocator::reset_peaks() {
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_active = stats_.active;
    stats_.peak_reserved = stats_.reserved;
    counter_.reset_peaks();
}

void CachingAllocator::reset_accumulated() {
    stats_.device_allocations = 0;
    stats_.device_frees = 0;
    stats_.retries = 0;
    stats_.out_of_memory = 0;
    stats_.waits_for_events = 0;
    counter_.reset_accumulated();
}

void CachingAllocator::rebind(DeviceMemory& memory, StreamEvents& events) {
    memory_ = &memory;
    events_ = &events;
}

}  // namespace stowage::memory
