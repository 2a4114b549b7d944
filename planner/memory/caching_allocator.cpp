#include "planner/memory/caching_allocator.hpp"

#include <algorithm>
#include <bit>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

constexpr std::size_t position(BlockHandle block) { return static_cast<std::size_t>(block); }
constexpr std::uint64_t bit(Stream stream) { return std::uint64_t{1} << stream; }

}  // namespace

CachingAllocator::CachingAllocator(const AllocatorConfig& config, DeviceMemory& memory, StreamEvents& events)
    : config_(config), memory_(&memory), events_(&events), inactive_mask_(config.expandable_segments ? 0 : -1) {
    STOWAGE_CHECK(config.roundup_power2_divisions == 0 ||
                      std::has_single_bit(static_cast<std::uint64_t>(config.roundup_power2_divisions)),
                  "roundup_power2_divisions is a power of two");
    STOWAGE_CHECK(config.max_split_size >= kLargeSegment, "max_split_size is at least 20 MiB");
    STOWAGE_CHECK(!config.expandable_segments || !config.limits_splitting(),
                  "expandable segments are modelled without a split limit");
}

std::optional<BlockHandle> CachingAllocator::allocate(Bytes size, Stream stream) {
    STOWAGE_CHECK(size.count > 0, "a block has bytes");
    STOWAGE_CHECK(stream < kMaxStreams, "at most 64 streams");
    if (held_streams_ != 0) release_completed();
    const Bytes wanted = block_size(config_, size);
    const BlockIndex index = find_block(wanted, stream, pool_class(wanted));
    if (index == kNoBlock) {
        ++stats_.out_of_memory;
        return std::nullopt;
    }
    hand_out(index, wanted);
    return static_cast<BlockHandle>(index);
}

bool CachingAllocator::has_block(Bytes size, Stream stream) {
    if (held_streams_ != 0) release_completed();
    const Bytes wanted = block_size(config_, size);
    const std::optional<FreeList::Entry> found = free_list(stream, pool_class(wanted)).best_fit(wanted);
    return found && may_serve(config_, found->size, wanted);
}

BlockIndex CachingAllocator::find_block(Bytes size, Stream stream, PoolClass pool) {
    if (const BlockIndex found = take_free_block(size, stream, pool); found != kNoBlock) return found;
    if (const BlockIndex made = reserve_segment(size, stream, pool); made != kNoBlock) return made;
    if (release_oversize_blocks(size, stream, pool))
        if (const BlockIndex made = reserve_segment(size, stream, pool); made != kNoBlock) return made;
    release_cached_segments();
    ++stats_.retries;
    return reserve_segment(size, stream, pool);
}

std::size_t CachingAllocator::list_of(Stream stream, PoolClass pool) {
    return std::size_t{2} * stream + static_cast<std::size_t>(pool);
}

FreeList& CachingAllocator::free_list(Stream stream, PoolClass pool) {
    const std::size_t place = list_of(stream, pool);
    if (place >= free_lists_.size()) free_lists_.resize(std::size_t{2} * stream + 2);
    return free_lists_[place];
}

BlockIndex CachingAllocator::take_free_block(Bytes size, Stream stream, PoolClass pool) {
    FreeList& list = free_list(stream, pool);
    std::optional<FreeList::Entry> found = list.best_fit(size);
    if (!found || !may_serve(config_, found->size, size)) return kNoBlock;
    if (config_.expandable_segments) found = best_fit_to_grow(list, *found);
    list.erase(found->size, found->address);
    if (blocks_[found->block].shares_segment()) count_inactive(-found->size.count);
    return found->block;
}

BlockIndex CachingAllocator::reserve_segment(Bytes size, Stream stream, PoolClass pool) {
    if (config_.expandable_segments) return expand(size, stream, pool);
    const Bytes whole = segment_size(size);
    const std::optional<Address> base = memory_->reserve(whole);
    if (!base) return kNoBlock;
    const BlockIndex index = new_block();
    const std::uint32_t segment = new_segment();
    segments_[segment] = {*base, whole.count, next_segment_number_++, index};
    Block& block = blocks_[index];
    block.address = *base;
    block.size = whole.count;
    block.segment = segment;
    block.stream = static_cast<std::uint16_t>(stream);
    block.pool = pool;
    ++stats_.segments;
    ++stats_.device_allocations;
    stats_.reserved += whole;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    return index;
}

void CachingAllocator::hand_out(BlockIndex index, Bytes size) {
    if (splits(config_, blocks_[index].pool, Bytes{blocks_[index].size}, size)) {
        const BlockIndex rest = cut(index, size.count);
        count_inactive(blocks_[rest].size);
        list_free(rest);
    }
    Block& block = blocks_[index];
    block.allocated = true;
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
    rest.stream = block.stream;
    rest.pool = block.pool;
    if (block.next != kNoBlock) blocks_[block.next].previous = rest_index;
    block.next = rest_index;
    block.size = size;
    return rest_index;
}

void CachingAllocator::list_free(BlockIndex index) {
    const Block& block = blocks_[index];
    free_list(block.stream, block.pool).insert({Bytes{block.size}, block.address, index});
}

void CachingAllocator::unlist_free(BlockIndex index) {
    const Block& block = blocks_[index];
    free_list(block.stream, block.pool).erase(Bytes{block.size}, block.address);
}

void CachingAllocator::free(BlockHandle handle) {
    const auto index = static_cast<BlockIndex>(handle);
    STOWAGE_CHECK(index < blocks_.size() && blocks_[index].allocated, "freed block is live");
    Block& block = blocks_[index];
    block.allocated = false;
    stats_.allocated -= Bytes{block.size};
    if (block.used_by != 0)
        hold(index);
    else
        make_free(index);
}

void CachingAllocator::record_stream(BlockHandle handle, Stream stream) {
    STOWAGE_CHECK(position(handle) < blocks_.size() && blocks_[position(handle)].allocated, "recorded block is live");
    STOWAGE_CHECK(stream < kMaxStreams, "at most 64 streams");
    Block& block = blocks_[position(handle)];
    if (block.stream != stream) block.used_by |= bit(stream);
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
}

void CachingAllocator::release_completed() {
    for (std::uint64_t streams = held_streams_; streams != 0; streams &= streams - 1) {
        const auto stream = static_cast<Stream>(std::countr_zero(streams));
        HeldQueue& queue = held_[stream];
        while (queue.head < queue.blocks.size() && events_->completed(queue.blocks[queue.head].event)) {
            const BlockIndex index = queue.blocks[queue.head++].block;
            if (--blocks_[index].pending_events == 0) make_free(index);
        }
        if (2 * queue.head < queue.blocks.size()) continue;
        queue.blocks.erase(queue.blocks.begin(), queue.blocks.begin() + static_cast<std::ptrdiff_t>(queue.head));
        queue.head = 0;
        if (queue.blocks.empty()) held_streams_ &= ~bit(stream);
    }
}

bool CachingAllocator::is_free(BlockIndex index) const {
    return index != kNoBlock && !blocks_[index].allocated && blocks_[index].pending_events == 0;
}

void CachingAllocator::make_free(BlockIndex index) {
    Block& block = blocks_[index];
    stats_.active -= Bytes{block.size};
    if (is_free(block.previous)) merge_previous(index);
    if (is_free(block.next)) merge_next(index);
    if (block.shares_segment()) count_inactive(block.size);
    list_free(index);
}

void CachingAllocator::merge_previous(BlockIndex index) {
    const BlockIndex absorbed = blocks_[index].previous;
    unlist_free(absorbed);
    count_inactive(-blocks_[absorbed].size);
    absorb_previous(index);
}

void CachingAllocator::merge_next(BlockIndex index) {
    const BlockIndex absorbed = blocks_[index].next;
    unlist_free(absorbed);
    count_inactive(-blocks_[absorbed].size);
    absorb_next(index);
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

std::uint32_t CachingAllocator::new_segment() {
    if (spare_segments_.empty()) {
        segments_.emplace_back();
        return static_cast<std::uint32_t>(segments_.size() - 1);
    }
    const std::uint32_t index = spare_segments_.back();
    spare_segments_.pop_back();
    return index;
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
    return {block.address, Bytes{block.size}, segment.number, Bytes{static_cast<std::int64_t>(block.address - begin)},
            Bytes{static_cast<std::int64_t>(end - begin)}};
}

}  // namespace stowage::memory
