#include "planner/memory/pinned_pool.hpp"

#include <algorithm>
#include <bit>

#include "scenarios/types/check.hpp"

namespace stowage::memory {
namespace {

/// The logarithm of the smallest power of two of at least `bytes`.
std::size_t size_class(std::int64_t bytes) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes) - 1));
}

}  // namespace

PinnedHandle PinnedPool::acquire(PinnedKey key, Bytes bytes, bool pooled) {
    STOWAGE_CHECK(bytes.count > 0, "a pinned buffer has bytes");
    std::uint32_t index = 0;
    Queue* queue = pooled ? &pool_[static_cast<std::uint64_t>(key)] : nullptr;
    if (queue != nullptr) {
        STOWAGE_CHECK(queue->bytes == 0 || queue->bytes == bytes.count, "one size for a key of the pinned pool");
        queue->bytes = bytes.count;
    }
    if (queue != nullptr && queue->head < queue->idle.size())
        index = queue->idle[queue->head++];
    else
        index = make_buffer(key, bytes, pooled);
    buffers_[index].in_use = true;
    stats_.in_use += bytes;
    stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
    return static_cast<PinnedHandle>(index);
}

void PinnedPool::release(PinnedHandle handle) {
    const auto index = static_cast<std::uint32_t>(handle);
    STOWAGE_CHECK(index < buffers_.size() && buffers_[index].in_use, "released pinned buffer is in use");
    Buffer& buffer = buffers_[index];
    buffer.in_use = false;
    stats_.in_use -= Bytes{buffer.bytes};
    if (!buffer.pooled) {
        stats_.requested -= Bytes{buffer.bytes};
        free_blocks_[size_class(buffer.bytes)].push_back(buffer.block);
        spare_buffers_.push_back(index);
        return;
    }
    Queue& queue = pool_[static_cast<std::uint64_t>(buffer.key)];
    if (2 * queue.head > queue.idle.size()) {
        queue.idle.erase(queue.idle.begin(), queue.idle.begin() + static_cast<std::ptrdiff_t>(queue.head));
        queue.head = 0;
    }
    queue.idle.push_back(index);
}

std::uint32_t PinnedPool::make_buffer(PinnedKey key, Bytes bytes, bool pooled) {
    std::uint32_t index = 0;
    if (spare_buffers_.empty()) {
        index = static_cast<std::uint32_t>(buffers_.size());
        buffers_.emplace_back();
    } else {
        index = spare_buffers_.back();
        spare_buffers_.pop_back();
    }
    buffers_[index] = {.key = key, .bytes = bytes.count, .block = take_block(bytes), .pooled = pooled};
    stats_.requested += bytes;
    stats_.peak_requested = std::max(stats_.peak_requested, stats_.requested);
    return index;
}

std::uint32_t PinnedPool::take_block(Bytes bytes) {
    const std::size_t log_size = size_class(bytes.count);
    std::vector<std::uint32_t>& free = free_blocks_.at(log_size);
    if (!free.empty()) {
        const std::uint32_t block = free.back();
        free.pop_back();
        return block;
    }
    stats_.reserved += Bytes{std::int64_t{1} << log_size};
    ++stats_.system_allocations;
    return next_block_++;
}

std::uint32_t PinnedPool::block_of(PinnedHandle handle) const {
    const Buffer& buffer = buffers_.at(static_cast<std::size_t>(handle));
    STOWAGE_CHECK(buffer.in_use, "pinned buffer is in use");
    return buffer.block;
}

}  // namespace stowage::memory
