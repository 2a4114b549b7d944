#include "planner/memory/pinned_blocks.hpp"

#include <algorithm>
#include <bit>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

constexpr std::int64_t kPage = 4096;

/// The logarithm of the smallest power of two of at least `bytes`.
std::size_t size_class(Bytes bytes) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes.count) - 1));
}

Bytes in_pages(Bytes bytes) { return Bytes{(bytes.count + kPage - 1) / kPage * kPage}; }

}  // namespace

const PinnedBlocks::Block& PinnedBlocks::block_of(PinnedBlock block) const {
    const auto index = static_cast<std::size_t>(block);
    STOWAGE_CHECK(index < blocks_.size() && blocks_[index].handed_out, "pinned block is in use");
    return blocks_[index];
}

bool PinnedBlocks::cached_when_free(Bytes size) const {
    return !config_.max_cached_size || size <= *config_.max_cached_size;
}

Bytes PinnedBlocks::block_bytes(Bytes bytes) const {
    const bool exact =
        (config_.max_round_threshold && bytes > *config_.max_round_threshold) || !cached_when_free(bytes);
    return exact ? bytes : Bytes{std::int64_t{1} << size_class(bytes)};
}

PinnedBlock PinnedBlocks::allocate(Bytes bytes, bool capturing) {
    STOWAGE_CHECK(bytes.count > 0, "a pinned buffer has bytes");
    process_events();
    const Bytes size = block_bytes(bytes);
    std::optional<std::uint32_t> index = take_free(size);
    if (!index) index = take_new(size);
    Block& block = blocks_[*index];
    block.handed_out = true;
    block.captured = capturing;
    stats_.active += block.size;
    stats_.peak_active = std::max(stats_.peak_active, stats_.active);
    return static_cast<PinnedBlock>(*index);
}

std::optional<std::uint32_t> PinnedBlocks::take_free(Bytes size) {
    std::vector<std::uint32_t>& free = free_[size_class(size)];
    const auto fits =
        std::find_if(free.rbegin(), free.rend(), [&](std::uint32_t index) { return blocks_[index].size >= size; });
    if (fits == free.rend()) return std::nullopt;
    const std::uint32_t index = *fits;
    free.erase(std::next(fits).base());
    return index;
}

std::uint32_t PinnedBlocks::take_new(Bytes size) {
    const bool in_segment = cut_from_segment(size);
    if (!in_segment) take_from_system(size);
    std::uint32_t index = 0;
    if (spare_.empty()) {
        index = static_cast<std::uint32_t>(blocks_.size());
        blocks_.emplace_back();
    } else {
        index = spare_.back();
        spare_.pop_back();
    }
    blocks_[index] = {.size = size, .in_segment = in_segment};
    return index;
}

bool PinnedBlocks::cut_from_segment(Bytes size) {
    if (config_.reserve_segment.count == 0) return false;
    if (!segment_left_) {
        take_from_system(config_.reserve_segment);
        segment_left_ = config_.reserve_segment;
    }
    if (in_pages(size) > *segment_left_) return false;
    *segment_left_ -= in_pages(size);
    return true;
}

void PinnedBlocks::take_from_system(Bytes bytes) {
    stats_.reserved += bytes;
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    ++stats_.system_allocations;
}

void PinnedBlocks::record_stream(PinnedBlock block, Stream stream) {
    STOWAGE_CHECK(stream < kMaxStreams, "stream number in range");
    static_cast<void>(block_of(block));
    blocks_[static_cast<std::size_t>(block)].used_on |= std::uint64_t{1} << stream;
}

void PinnedBlocks::free(PinnedBlock handle) {
    static_cast<void>(block_of(handle));
    const auto index = static_cast<std::uint32_t>(handle);
    Block& block = blocks_[index];
    block.handed_out = false;
    if (block.used_on == 0) return make_free(index);
    if (block.captured) return;
    if (events_ == nullptr) {
        block.used_on = 0;
        return make_free(index);
    }
    hold(index);
}

void PinnedBlocks::hold(std::uint32_t index) {
    Block& block = blocks_[index];
    for (std::uint64_t streams = block.used_on; streams != 0; streams &= streams - 1) {
        held_.push_back({events_->record(static_cast<Stream>(std::countr_zero(streams))), index});
        ++block.pending;
    }
    block.used_on = 0;
}

void PinnedBlocks::process_events() {
    while (!held_.empty() && events_->completed(held_.front().event)) {
        const std::uint32_t index = held_.front().block;
        held_.pop_front();
        if (--blocks_[index].pending == 0) make_free(index);
    }
}

void PinnedBlocks::make_free(std::uint32_t index) {
    const Block& block = blocks_[index];
    stats_.active -= block.size;
    if (cached_when_free(block.size))
        free_[size_class(block.size)].push_back(index);
    else
        give_back(index);
}

/// What lies in the reserve segment is lost with its block: the segment is never cut there again.
void PinnedBlocks::give_back(std::uint32_t index) {
    if (!blocks_[index].in_segment) {
        stats_.reserved -= blocks_[index].size;
        ++stats_.system_frees;
    }
    spare_.push_back(index);
}

void PinnedBlocks::empty_cache() {
    process_events();
    for (std::vector<std::uint32_t>& free : free_) {
        for (const std::uint32_t index : free) give_back(index);
        free.clear();
    }
}

}  // namespace stowage::memory
