// The caching allocator's private pools, and the blocks that are freed while events are open or a graph is captured.

#include <algorithm>
#include <bit>

#include "planner/memory/caching_allocator.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

constexpr std::uint64_t bit(Stream stream) { return std::uint64_t{1} << stream; }

}  // namespace

CachingAllocator::PoolSlot CachingAllocator::slot_of(PoolId pool) const {
    for (std::size_t slot = 0; slot < pools_.size(); ++slot)
        if (pools_[slot].known && pools_[slot].id == pool) return static_cast<PoolSlot>(slot);
    return kDefaultPool;
}

CachingAllocator::PoolSlot CachingAllocator::new_pool(PoolId pool) {
    const auto unused = std::find_if(pools_.begin(), pools_.end(), [](const PrivatePool& one) { return !one.known; });
    const auto slot = static_cast<PoolSlot>(unused - pools_.begin());
    if (unused == pools_.end()) pools_.emplace_back();
    pools_[slot].id = pool;
    pools_[slot].known = true;
    return slot;
}

void CachingAllocator::begin_capture(PoolId pool, Stream stream) {
    PoolSlot slot = slot_of(pool);
    STOWAGE_CHECK(slot == kDefaultPool || pools_[slot].graphs > 0, "a pool captured into has a graph");
    if (slot == kDefaultPool) slot = new_pool(pool);
    STOWAGE_CHECK(!pools_[slot].capturing, "a pool serves one capture at a time");
    ++pools_[slot].graphs;
    pools_[slot].capturing = true;
    ++captures_;
    memory_->begin_capture();
    join_capture(pool, stream);
}

void CachingAllocator::join_capture(PoolId pool, Stream stream) {
    STOWAGE_CHECK(stream < kMaxStreams, "at most 64 streams");
    const PoolSlot slot = slot_of(pool);
    STOWAGE_CHECK(slot != kDefaultPool && pools_[slot].capturing, "the capture joined is under way");
    if (owners_[stream] == slot) return;
    STOWAGE_CHECK(!is_captured(stream), "a stream is in one capture at a time");
    pools_[slot].streams |= bit(stream);
    route(stream, slot);
}

void CachingAllocator::end_capture(PoolId pool) {
    const PoolSlot slot = slot_of(pool);
    STOWAGE_CHECK(slot != kDefaultPool && pools_[slot].capturing, "the capture ended is under way");
    for (std::uint64_t streams = pools_[slot].streams; streams != 0; streams &= streams - 1)
        route(static_cast<Stream>(std::countr_zero(streams)), kDefaultPool);
    pools_[slot].streams = 0;
    pools_[slot].capturing = false;
    --captures_;
}

void CachingAllocator::release_pool(PoolId pool) {
    const PoolSlot slot = slot_of(pool);
    STOWAGE_CHECK(slot != kDefaultPool && pools_[slot].graphs > (pools_[slot].capturing ? 1 : 0),
                  "a pool released has a graph");
    --pools_[slot].graphs;
}

std::int64_t CachingAllocator::graphs_of(PoolId pool) const {
    const PoolSlot slot = slot_of(pool);
    return slot == kDefaultPool ? 0 : pools_[slot].graphs;
}

void CachingAllocator::route(Stream stream, PoolSlot owner) {
    owners_[stream] = owner;
    if (owner == kDefaultPool) {
        routes_[stream] = default_routes_[stream];
        return;
    }
    routes_[stream] = {kNoCache, kNoCache};
    for (const CacheIndex cache : pools_[owner].caches)
        if (caches_[cache].stream == stream) routes_[stream][static_cast<std::size_t>(caches_[cache].pool)] = cache;
}

// A pool whose graphs are all gone is forgotten with its last segment, and its id can be used anew.
void CachingAllocator::forget_empty_pools() {
    for (PrivatePool& pool : pools_) {
        if (!pool.known || pool.graphs > 0 || pool.segments > 0) continue;
        for (const CacheIndex cache : pool.caches) {
            caches_[cache].free.clear();
            caches_[cache].owner = kDefaultPool;
            spare_caches_.push_back(cache);
        }
        pool = PrivatePool{};
    }
}

void CachingAllocator::look_at_held(Stream stream) {
    if (!capturing()) {
        release_deferred();
        release_completed();
    } else if (config_.graph_capture_record_stream_reuse && is_captured(stream)) {
        lend_ordered_blocks(stream);
    }
}

void CachingAllocator::hold(BlockIndex index) {
    Block& block = blocks_[index];
    for (std::uint64_t streams = block.used_by; streams != 0; streams &= streams - 1) {
        const auto stream = static_cast<Stream>(std::countr_zero(streams));
        if (held_.size() <= stream) held_.resize(stream + 1);
        held_[stream].blocks.push_back({events_->record(stream), index});
        held_streams_ |= bit(stream);
        ++block.pending_events;
    }
    block.used_by = 0;
    block.used_in_capture = 0;
}

// The marks are the ends of all streams that used the block, its own among them. They say nothing unless all of them
// are in the capture, nor if the graph is still empty there.
void CachingAllocator::defer(BlockIndex index) {
    Block& block = blocks_[index];
    block.pending_events = kDeferred;
    DeferredBlock& deferred = deferred_.emplace_back(DeferredBlock{index, {}});
    if (!config_.graph_capture_record_stream_reuse) return;
    const std::uint64_t streams = block.used_by | bit(caches_[block.cache].stream);
    for (std::uint64_t rest = streams; rest != 0; rest &= rest - 1)
        if (!is_captured(static_cast<Stream>(std::countr_zero(rest)))) return;
    for (std::uint64_t rest = streams; rest != 0; rest &= rest - 1)
        if (const std::optional<CaptureMark> mark = events_->mark(static_cast<Stream>(std::countr_zero(rest))))
            deferred.marks.push_back(*mark);
}

// Uses that were told during a capture have been ordered by the graph; earlier ones are waited for by events.
void CachingAllocator::release_deferred() {
    for (const DeferredBlock& deferred : deferred_) {
        Block& block = blocks_[deferred.block];
        block.pending_events = 0;
        block.used_by &= ~block.used_in_capture;
        hold(deferred.block);
        if (block.pending_events == 0) end_hold(deferred.block);
    }
    deferred_.clear();
}

void CachingAllocator::lend_ordered_blocks(Stream stream) {
    std::erase_if(deferred_, [&](const DeferredBlock& deferred) {
        Block& block = blocks_[deferred.block];
        if (deferred.marks.empty() || caches_[block.cache].stream != stream) return false;
        const bool ordered = std::all_of(deferred.marks.begin(), deferred.marks.end(),
                                         [&](CaptureMark mark) { return events_->is_behind(stream, mark); });
        if (!ordered) return false;
        block.pending_events = 0;
        block.used_by = 0;
        block.used_in_capture = 0;
        end_hold(deferred.block);
        return true;
    });
}

void CachingAllocator::release_completed() {
    for (std::uint64_t streams = held_streams_; streams != 0; streams &= streams - 1) {
        const auto stream = static_cast<Stream>(std::countr_zero(streams));
        HeldQueue& queue = held_[stream];
        while (queue.head < queue.blocks.size() && events_->completed(queue.blocks[queue.head].event)) {
            const BlockIndex index = queue.blocks[queue.head++].block;
            if (--blocks_[index].pending_events == 0) end_hold(index);
        }
        if (2 * queue.head < queue.blocks.size()) continue;
        queue.blocks.erase(queue.blocks.begin(), queue.blocks.begin() + static_cast<std::ptrdiff_t>(queue.head));
        queue.head = 0;
        if (queue.blocks.empty()) held_streams_ &= ~bit(stream);
    }
}

}  // namespace stowage::memory
