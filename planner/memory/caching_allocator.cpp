#include "planner/memory/caching_allocator.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

constexpr std::size_t position(BlockHandle block) { return static_cast<std::size_t>(block); }
constexpr std::uint64_t bit(Stream stream) { return std::uint64_t{1} << stream; }

Bytes allowed_memory(const AllocatorConfig& config, Bytes capacity) {
    if (!config.limits_memory()) return Bytes{std::numeric_limits<std::int64_t>::max()};
    return Bytes{static_cast<std::int64_t>(config.per_process_memory_fraction * static_cast<double>(capacity.count))};
}

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorConfig& config, DeviceMemory& memory, StreamEvents& events)
    : config_(config),
      memory_(&memory),
      events_(&events),
      allowed_(allowed_memory(config, memory.capacity())),
      rounds_to_divisions_(config.roundup_power2_divisions != PowerOfTwoDivisions{}),
      counts_inactive_(!config.expandable_segments),
      collects_garbage_(config.collects_garbage()) {
    STOWAGE_CHECK(
        std::all_of(
            config.roundup_power2_divisions.steps.begin(), config.roundup_power2_divisions.steps.end(),
            [](std::int64_t steps) { return steps == 0 || std::has_single_bit(static_cast<std::uint64_t>(steps)); }),
        "roundup_power2_divisions are powers of two");
    STOWAGE_CHECK(config.large_segment > kLargeSegmentLimit, "large_segment_size_mb is above 10 MiB");
    STOWAGE_CHECK(config.max_split_size >= config.large_segment, "max_split_size is at least a large segment");
    STOWAGE_CHECK(config.per_process_memory_fraction >= 0 && config.garbage_collection_threshold >= 0 &&
                      config.garbage_collection_threshold < 1,
                  "a memory fraction and a threshold are parts of a whole");
    routes_.fill({kNoCache, kNoCache});
    default_routes_ = routes_;
    owners_.fill(kDefaultPool);
}

Bytes CachingAllocator::rounded(Bytes size) const {
    if (rounds_to_divisions_) [[unlikely]]
        return block_size(config_, size);
    constexpr std::int64_t kMask = kMinBlock.count - 1;
    return Bytes{(size.count + kMask) & ~kMask};
}

std::optional<BlockHandle> CachingAllocator::allocate(Bytes size, Stream stream) {
    STOWAGE_CHECK(size.count > 0, "a block has bytes");
    STOWAGE_CHECK(stream < kMaxStreams, "at most 64 streams");
    if (held_streams_ != 0 || !deferred_.empty()) look_at_held(stream);
    const Bytes wanted = rounded(size);
    const BlockIndex index = find_block(wanted, cache_for(stream, pool_class(wanted)));
    if (index == kNoBlock) {
        ++stats_.out_of_memory;
        return std::nullopt;
    }
    hand_out(index, wanted, size);
    return static_cast<BlockHandle>(index);
}

bool CachingAllocator::has_block(Bytes size, Stream stream) {
    if (held_streams_ != 0 || !deferred_.empty()) look_at_held(stream);
    const Bytes wanted = rounded(size);
    return best_fit(wanted, cache_for(stream, pool_class(wanted))).has_value();
}

BlockIndex CachingAllocator::find_block(Bytes size, CacheIndex cache) {
    if (collects_garbage_) count_search(cache);
    if (const BlockIndex found = take_free_block(size, cache); found != kNoBlock) return found;
    if (collects_garbage_) collect_garbage();
    if (const BlockIndex made = reserve(size, cache); made != kNoBlock) return made;
    if (release_oversize_blocks(size, cache))
        if (const BlockIndex made = reserve(size, cache); made != kNoBlock) return made;
    if (capturing()) return kNoBlock;
    release_cached_segments();
    ++stats_.retries;
    return reserve(size, cache);
}

CachingAllocator::CacheIndex CachingAllocator::known_cache(Stream stream, PoolClass pool) const {
    return routes_[stream][static_cast<std::size_t>(pool)];
}

CachingAllocator::CacheIndex CachingAllocator::cache_for(Stream stream, PoolClass pool) {
    if (const CacheIndex known = known_cache(stream, pool); known != kNoCache) [[likely]]
        return known;
    CacheIndex index = static_cast<CacheIndex>(caches_.size());
    if (spare_caches_.empty()) {
        caches_.emplace_back();
    } else {
        index = spare_caches_.back();
        spare_caches_.pop_back();
    }
    Cache& cache = caches_[index];
    cache.stream = stream;
    cache.pool = pool;
    cache.owner = owners_[stream];
    routes_[stream][static_cast<std::size_t>(pool)] = index;
    if (cache.owner == kDefaultPool)
        default_routes_[stream] = routes_[stream];
    else
        pools_[cache.owner].caches.push_back(index);
    return index;
}

std::optional<FreeList::Entry> CachingAllocator::best_fit(Bytes size, CacheIndex cache) const {
    const FreeList& list = caches_[cache].free;
    std::optional<FreeList::Entry> found = list.best_fit(size);
    if (!found) return found;
    if (config_.expandable_segments) found = best_fit_to_grow(list, *found);
    if (!may_serve(config_, found->size, size)) return std::nullopt;
    return found;
}

void CachingAllocator::count_search(CacheIndex index) {
    if (caches_[index].pool == PoolClass::large && caches_[index].owner == kDefaultPool) ++searches_;
}

BlockIndex CachingAllocator::take_free_block(Bytes size, CacheIndex index) {
    FreeList& list = caches_[index].free;
    // Of blocks that cannot grow, one of the very size is always the best, and may always serve.
    if (!config_.expandable_segments)
        if (const BlockIndex exact = list.take_exact(size); exact != kNoBlock) return exact;
    const std::optional<FreeList::Entry> found = best_fit(size, index);
    if (!found) return kNoBlock;
    list.erase(found->size, found->address, blocks_[found->block].guess);
    return found->block;
}

BlockIndex CachingAllocator::reserve(Bytes size, CacheIndex cache) {
    // The whole segment is held against the limit, also where a part of an expandable one is mapped.
    if (!allows(segment_size(size, config_.large_segment))) return kNoBlock;
    return config_.expandable_segments ? expand(size, cache) : reserve_segment(size, cache);
}

BlockIndex CachingAllocator::reserve_segment(Bytes size, CacheIndex cache) {
    const Bytes whole = segment_size(size, config_.large_segment);
    const std::optional<Address> base = memory_->reserve(whole);
    if (!base) return kNoBlock;
    const BlockIndex index = new_block();
    Block& block = blocks_[index];
    block.address = *base;
    block.size = whole.count;
    block.cache = cache;
    block.pool = caches_[cache].pool;
    block.segment = new_segment(*base, whole, index, cache);
    ++stats_.segments;
    counter_.change_segments(block.pool, 1);
    if (whole >= config_.max_split_size) counter_.change_oversize_segments(1);
    count_reserved(block.pool, whole);
    return index;
}

void CachingAllocator::count_reserved(PoolClass pool, Bytes size) {
    counter_.change_reserved(pool, size.count);
    stats_.reserved += size;
    if (size.count < 0) {
        ++stats_.device_frees;
        return;
    }
    ++stats_.device_allocations;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
}

void CachingAllocator::hand_out(BlockIndex index, Bytes size, Bytes requested) {
    const bool was_split = blocks_[index].shares_segment();
    std::int64_t split_blocks = 0;
    std::int64_t split_bytes = 0;
    if (splits(config_, blocks_[index].pool, Bytes{blocks_[index].size}, size)) {
        const BlockIndex rest = cut(index, size.count);
        split_blocks = was_split ? 0 : 1;
        split_bytes = was_split ? -size.count : blocks_[rest].size;
        list_free(rest);
    } else if (was_split) {
        split_blocks = -1;
        split_bytes = -blocks_[index].size;
    }
    Block& block = blocks_[index];
    if (counts_inactive_ && split_bytes != 0) {
        stats_.inactive_split += Bytes{split_bytes};
        counter_.change_split(block.pool, split_blocks, split_bytes);
    }
    block.allocated = true;
    block.requested = requested.count;
    counter_.allocate(block.pool, block.size, block.requested);
    if (block.size >= config_.max_split_size.count) [[unlikely]]
        counter_.change_oversize_blocks(1);
    stats_.allocated += Bytes{block.size};
    stats_.active += Bytes{block.size};
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    stats_.peak_active = std::max(stats_.peak_active, stats_.active);
}

// Shortens a block to `size`; what is behind becomes a block of its own, which the caller lists.
BlockIndex CachingAllocator::cut(BlockIndex index, std::int64_t size) {
    const BlockIndex rest_index = new_block();
    Block& block = blocks_[index];
    Block& rest = blocks_[rest_index];
    rest.address = block.address + static_cast<Address>(size);
    rest.size = block.size - size;
    rest.previous = index;
    rest.next = block.next;
    rest.segment = block.segment;
    rest.cache = block.cache;
    rest.pool = block.pool;
    if (block.next != kNoBlock) blocks_[block.next].previous = rest_index;
    block.next = rest_index;
    block.size = size;
    return rest_index;
}

void CachingAllocator::list_free(BlockIndex index) {
    Block& block = blocks_[index];
    block.guess = caches_[block.cache].free.insert({Bytes{block.size}, block.address, index}, block.guess);
    if (!collects_garbage_) return;
    if (listed_at_.size() <= index) listed_at_.resize(blocks_.size());
    listed_at_[index] = searches_;
}

void CachingAllocator::unlist_free(BlockIndex index) {
    const Block& block = blocks_[index];
    caches_[block.cache].free.erase(Bytes{block.size}, block.address, block.guess);
}

void CachingAllocator::free(BlockHandle handle) {
    const auto index = static_cast<BlockIndex>(handle);
    STOWAGE_CHECK(index < blocks_.size() && blocks_[index].allocated, "freed block is live");
    Block& block = blocks_[index];
    block.allocated = false;
    stats_.allocated -= Bytes{block.size};
    if (block.size >= config_.max_split_size.count) [[unlikely]]
        counter_.change_oversize_blocks(-1);
    if (block.used_by == 0) {
        make_free(index);
        return;
    }
    counter_.hold(block.pool, block.size);
    if (capturing())
        defer(index);
    else
        hold(index);
}

void CachingAllocator::end_hold(BlockIndex index) {
    const Block& block = blocks_[index];
    counter_.end_hold(block.pool, block.size, block.requested);
    make_free(index);
}

void CachingAllocator::record_stream(BlockHandle handle, Stream stream) {
    STOWAGE_CHECK(position(handle) < blocks_.size() && blocks_[position(handle)].allocated, "recorded block is live");
    STOWAGE_CHECK(stream < kMaxStreams, "at most 64 streams");
    Block& block = blocks_[position(handle)];
    if (caches_[block.cache].stream == stream) return;
    block.used_by |= bit(stream);
    if (capturing()) block.used_in_capture |= bit(stream);
}

bool CachingAllocator::is_free(BlockIndex index) const {
    return index != kNoBlock && !blocks_[index].allocated && blocks_[index].pending_events == 0;
}

void CachingAllocator::make_free(BlockIndex index) {
    Block& block = blocks_[index];
    stats_.active -= Bytes{block.size};
    counter_.release(block.pool, block.size, block.requested);
    std::int64_t split_blocks = 0;
    std::int64_t split_bytes = 0;
    for (const BlockIndex neighbour : {block.previous, block.next}) {
        const std::int64_t absorbed = absorb_free(index, neighbour);
        split_bytes -= absorbed;
        split_blocks -= absorbed > 0 ? 1 : 0;
    }
    if (block.shares_segment()) {
        split_bytes += block.size;
        ++split_blocks;
    }
    if (counts_inactive_ && split_bytes != 0) {
        stats_.inactive_split += Bytes{split_bytes};
        counter_.change_split(block.pool, split_blocks, split_bytes);
    }
    list_free(index);
}

// A free neighbour becomes part of the block; returns its bytes.
std::int64_t CachingAllocator::absorb_free(BlockIndex index, BlockIndex neighbour) {
    if (!is_free(neighbour)) return 0;
    const std::int64_t bytes = blocks_[neighbour].size;
    unlist_free(neighbour);
    if (blocks_[index].previous == neighbour)
        absorb_previous(index);
    else
        absorb_next(index);
    return bytes;
}

void CachingAllocator::absorb_previous(BlockIndex index) {
    Block& block = blocks_[index];
    const BlockIndex absorbed = block.previous;
    const Block& before = blocks_[absorbed];
    block.address = before.address;
    block.size += before.size;
    block.previous = before.previous;
    if (block.previous != kNoBlock)
        blocks_[block.previous].next = index;
    else
        segments_[block.segment].first = index;
    spare_blocks_.push_back(absorbed);
}

void CachingAllocator::absorb_next(BlockIndex index) {
    Block& block = blocks_[index];
    const BlockIndex absorbed = block.next;
    const Block& after = blocks_[absorbed];
    block.size += after.size;
    block.next = after.next;
    if (block.next != kNoBlock) blocks_[block.next].previous = index;
    spare_blocks_.push_back(absorbed);
}

BlockIndex CachingAllocator::new_block() {
    if (spare_blocks_.empty()) {
        blocks_.emplace_back();
        return static_cast<BlockIndex>(blocks_.size() - 1);
    }
    const BlockIndex index = spare_blocks_.back();
    spare_blocks_.pop_back();
    blocks_[index] = Block{};
    return index;
}

std::uint32_t CachingAllocator::new_segment(Address base, Bytes size, BlockIndex first, CacheIndex cache) {
    auto index = static_cast<std::uint32_t>(segments_.size());
    if (spare_segments_.empty()) {
        segments_.emplace_back();
    } else {
        index = spare_segments_.back();
        spare_segments_.pop_back();
    }
    segments_[index] = {base, size.count, next_segment_number_++, first};
    if (const PoolSlot owner = caches_[cache].owner; owner != kDefaultPool) ++pools_[owner].segments;
    return index;
}

void CachingAllocator::forget_segment(std::uint32_t segment, CacheIndex cache) {
    segments_[segment].first = kNoBlock;
    spare_segments_.push_back(segment);
    if (const PoolSlot owner = caches_[cache].owner; owner != kDefaultPool) --pools_[owner].segments;
}

MemoryStatistics CachingAllocator::statistics() const {
    MemoryStatistics all = counter_.statistics();
    all.num_alloc_retries = stats_.retries;
    all.num_ooms = stats_.out_of_memory;
    all.num_sync_all_streams = stats_.waits_for_events;
    all.num_device_alloc = stats_.device_allocations;
    all.num_device_free = stats_.device_frees;
    if (config_.limits_splitting()) all.max_split_size = config_.max_split_size.count;
    return all;
}

BlockPlace CachingAllocator::place(BlockHandle handle) const {
    STOWAGE_CHECK(position(handle) < blocks_.size() && blocks_[position(handle)].allocated, "block is live");
    const Block& block = blocks_[position(handle)];
    const Segment& segment = segments_[block.segment];
    Address begin = segment.base;
    Address end = begin + static_cast<Address>(segment.size);
    if (config_.expandable_segments) {
        BlockIndex first = static_cast<BlockIndex>(handle);
        while (blocks_[first].previous != kNoBlock && !is_unmapped(blocks_[first].previous))
            first = blocks_[first].previous;
        BlockIndex last = static_cast<BlockIndex>(handle);
        while (blocks_[last].next != kNoBlock && !is_unmapped(blocks_[last].next)) last = blocks_[last].next;
        begin = blocks_[first].address;
        end = blocks_[last].address + static_cast<Address>(blocks_[last].size);
    }
    const PoolSlot owner = caches_[block.cache].owner;
    return {block.address,
            Bytes{block.size},
            segment.number,
            Bytes{static_cast<std::int64_t>(block.address - begin)},
            Bytes{static_cast<std::int64_t>(end - begin)},
            owner == kDefaultPool ? std::nullopt : std::optional(pools_[owner].id)};
}

}  // namespace stowage::memory
