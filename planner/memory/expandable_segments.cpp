// The caching allocator's expandable segments: ranges of addresses that are mapped and unmapped in granules.
//
// A hole, a part without memory, is a node among the blocks of its segment, so a block finds the hole behind it as it
// finds any neighbour; to the rest of the allocator it is a block that is held for ever.

#include <algorithm>

#include "planner/memory/caching_allocator.hpp"
#include "scenarios/types/check.hpp"

namespace stowage::memory {

bool CachingAllocator::is_unmapped(BlockIndex index) const {
    return index != kNoBlock && blocks_[index].pending_events == kUnmapped;
}

/// What a free block could grow to.
std::int64_t CachingAllocator::expandable_size(const FreeList::Entry& entry) const {
    const BlockIndex next = blocks_[entry.block].next;
    return entry.size.count + (is_unmapped(next) ? blocks_[next].size : 0);
}

// Goes on from the best fit as long as the next block in the order could grow to less than this one.
FreeList::Entry CachingAllocator::best_fit_to_grow(const FreeList& list, FreeList::Entry found) const {
    if (!is_unmapped(blocks_[found.block].next)) return found;
    for (;;) {
        const std::optional<FreeList::Entry> next = list.after(found);
        if (!next || expandable_size(*next) >= expandable_size(found)) return found;
        found = *next;
    }
}

bool CachingAllocator::has_room_from(BlockIndex index, Bytes size) const {
    std::int64_t bytes = 0;
    for (; bytes < size.count && (is_free(index) || is_unmapped(index)); index = blocks_[index].next)
        bytes += blocks_[index].size;
    return bytes >= size.count;
}

/// The lowest hole, or the free block right before it, from where on nothing is in use for `size` bytes.
BlockIndex CachingAllocator::find_room(Bytes size, CacheIndex cache) const {
    if (cache == kNoCache) return kNoBlock;
    for (const BlockIndex hole : caches_[cache].holes) {
        const BlockIndex before = blocks_[hole].previous;
        const BlockIndex start = is_free(before) ? before : hole;
        if (has_room_from(start, size)) return start;
    }
    return kNoBlock;
}

Bytes CachingAllocator::growth(Bytes size, Stream stream) const {
    const Bytes wanted = rounded(size);
    if (!config_.expandable_segments) return segment_size(wanted, config_.large_segment);
    const PoolClass pool = pool_class(wanted);
    BlockIndex index = find_room(wanted, known_cache(stream, pool));
    if (index == kNoBlock) return mapped_size(granule_of(pool), wanted);
    Bytes found, mapped;
    for (; found < wanted; index = blocks_[index].next) {
        const Bytes part{blocks_[index].size};
        if (!is_unmapped(index)) {
            found += part;
            continue;
        }
        const Bytes more = mapped_size(granule_of(pool), std::min(wanted - found, part));
        found += more;
        mapped += more;
    }
    return mapped;
}

// What was mapped before the device ran out stays mapped, a free block.
BlockIndex CachingAllocator::expand(Bytes size, CacheIndex cache) {
    BlockIndex index = find_room(size, cache);
    if (index == kNoBlock) index = reserve_range(cache);
    if (is_unmapped(index) && !map(index, std::min(size, Bytes{blocks_[index].size}))) return kNoBlock;
    while (blocks_[index].size < size.count) {
        const Bytes missing{size.count - blocks_[index].size};
        index = blocks_[index].next;
        if (!map(index, std::min(missing, Bytes{blocks_[index].size}))) return kNoBlock;
    }
    unlist_free(index);
    return index;
}

BlockIndex CachingAllocator::reserve_range(CacheIndex cache) {
    const PoolClass pool = caches_[cache].pool;
    const Bytes size = expandable_range(granule_of(pool), memory_->capacity());
    const Address base = memory_->reserve_range(size);
    const BlockIndex index = new_block();
    Block& hole = blocks_[index];
    hole.address = base;
    hole.size = size.count;
    hole.cache = cache;
    hole.pool = pool;
    hole.pending_events = kUnmapped;
    hole.segment = new_segment(base, size, index, cache);
    list_unmapped(index);
    return index;
}

// Maps the first `size` bytes of a hole, in whole granules; they join the free blocks on both sides.
bool CachingAllocator::map(BlockIndex index, Bytes size) {
    const Bytes whole = mapped_size(granule_of(blocks_[index].pool), size);
    if (!memory_->map(blocks_[index].address, whole)) return false;
    unlist_unmapped(index);
    if (whole.count < blocks_[index].size) {
        const BlockIndex rest = cut(index, whole.count);
        blocks_[rest].pending_events = kUnmapped;
        list_unmapped(rest);
    }
    Block& block = blocks_[index];
    block.pending_events = 0;
    absorb_free(index, block.previous);
    absorb_free(index, block.next);
    list_free(index);
    count_reserved(block.pool, whole);
    return true;
}

GranuleRange CachingAllocator::whole_granules_of(BlockIndex index) const {
    const Block& block = blocks_[index];
    const Bytes offset{static_cast<std::int64_t>(block.address - segments_[block.segment].base)};
    return whole_granules(granule_of(block.pool), offset, Bytes{block.size});
}

// Gives the whole granules inside a free block back; what is left before and behind them stays free.
void CachingAllocator::unmap(BlockIndex index) {
    const GranuleRange granules = whole_granules_of(index);
    STOWAGE_CHECK(is_free(index) && granules.size.count > 0, "what is unmapped is free and whole granules");
    unlist_free(index);
    const Address begin = segments_[blocks_[index].segment].base + static_cast<Address>(granules.offset.count);
    if (const auto before = static_cast<std::int64_t>(begin - blocks_[index].address); before > 0) {
        const BlockIndex rest = cut(index, before);
        list_free(index);
        index = rest;
    }
    if (blocks_[index].size > granules.size.count) list_free(cut(index, granules.size.count));
    memory_->unmap(begin, granules.size);
    count_reserved(blocks_[index].pool, Bytes{-granules.size.count});
    blocks_[index].pending_events = kUnmapped;
    if (const BlockIndex before = blocks_[index].previous; is_unmapped(before)) {
        unlist_unmapped(before);
        absorb_previous(index);
    }
    if (const BlockIndex after = blocks_[index].next; is_unmapped(after)) {
        unlist_unmapped(after);
        absorb_next(index);
    }
    if (blocks_[index].shares_segment())
        list_unmapped(index);
    else
        release_range(index);
}

void CachingAllocator::release_range(BlockIndex index) {
    const std::uint32_t segment = blocks_[index].segment;
    memory_->release_range(segments_[segment].base, Bytes{segments_[segment].size});
    forget_segment(segment, blocks_[index].cache);
    spare_blocks_.push_back(index);
}

/// Gives a segment back, whatever lies in it; its blocks are forgotten by the caller.
void CachingAllocator::unmap_segment(const Segment& segment) {
    for (BlockIndex index = segment.first; index != kNoBlock;) {
        const Address begin = blocks_[index].address;
        Address end = begin;
        for (; index != kNoBlock && !is_unmapped(index); index = blocks_[index].next)
            end += static_cast<Address>(blocks_[index].size);
        if (end > begin) memory_->unmap(begin, Bytes{static_cast<std::int64_t>(end - begin)});
        if (index != kNoBlock) index = blocks_[index].next;
    }
    memory_->release_range(segment.base, Bytes{segment.size});
}

void CachingAllocator::list_unmapped(BlockIndex index) {
    std::vector<BlockIndex>& list = caches_[blocks_[index].cache].holes;
    const auto above = std::find_if(list.begin(), list.end(),
                                    [&](BlockIndex other) { return blocks_[other].address > blocks_[index].address; });
    list.insert(above, index);
}

void CachingAllocator::unlist_unmapped(BlockIndex index) {
    std::vector<BlockIndex>& list = caches_[blocks_[index].cache].holes;
    const auto place = std::find(list.begin(), list.end(), index);
    STOWAGE_CHECK(place != list.end(), "a hole is listed");
    list.erase(place);
}

}  // namespace stowage::memory
