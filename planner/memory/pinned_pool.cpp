#include "planner/memory/pinned_pool.hpp"

#include <algorithm>

#include "scenarios/types/check.hpp"

namespace stowage::memory {

PinnedKey PinnedKeys::key(const std::vector<std::int64_t>& shape, types::DataType type) {
    return numbers_.try_emplace({shape, type}, static_cast<PinnedKey>(numbers_.size())).first->second;
}

PinnedHandle PinnedPool::acquire(PinnedKey key, Bytes bytes, bool pooled) {
    STOWAGE_CHECK(bytes.count > 0, "a pinned buffer has bytes");
    std::uint32_t index = 0;
    Queue* queue = pooled ? &pool_[static_cast<std::uint64_t>(key)] : nullptr;
    if (queue != nullptr) {
        STOWAGE_CHECK(queue->bytes.count == 0 || queue->bytes == bytes, "one size for a key of the pinned pool");
        queue->bytes = bytes;
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
    static_cast<void>(used(handle));
    const auto index = static_cast<std::uint32_t>(handle);
    Buffer& buffer = buffers_[index];
    buffer.in_use = false;
    stats_.in_use -= buffer.bytes;
    if (!buffer.pooled) {
        stats_.requested -= buffer.bytes;
        blocks_.free(buffer.block);
        count_blocks();
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
    buffers_[index] = {.key = key, .bytes = bytes, .block = blocks_.allocate(bytes), .pooled = pooled};
    count_blocks();
    stats_.requested += bytes;
    stats_.peak_requested = std::max(stats_.peak_requested, stats_.requested);
    return index;
}

void PinnedPool::count_blocks() {
    stats_.reserved = blocks_.stats().reserved;
    stats_.peak_reserved = blocks_.stats().peak_reserved;
    stats_.system_allocations = blocks_.stats().system_allocations;
}

const PinnedPool::Buffer& PinnedPool::used(PinnedHandle handle) const {
    const auto index = static_cast<std::size_t>(handle);
    STOWAGE_CHECK(index < buffers_.size() && buffers_[index].in_use, "pinned buffer is in use");
    return buffers_[index];
}

}  // namespace stowage::memory
