#pragma once

// Pinned host memory of one rank, as Megatron's offload manager takes it.
//
// Two layers. Below, PyTorch's caching allocator of pinned memory (pinned_blocks.hpp). Above, Megatron's pool: buffers
// of one shape and type share a queue, the one that has been free longest is taken first, a new one is made when none
// is free, and none is ever dropped. Groups of the experts bypass the pool, since their shapes vary: they take a block
// of the lower layer each time and give it back.
//
// Worked example: two pooled buffers of 24 MiB live at once, then both free: requested 48 MiB, reserved 2 x 32 MiB, and
// both stay. A bypassing buffer of 24 MiB then adds a third block, since the two belong to the pool.
//
// A pooled buffer may be taken again as soon as its reload is enqueued: the pool asks no event. What bypasses it waits
// for the copies that used it, since the lower layer does.
//
// Source: Megatron-LM, fine_grained_activation_offload.py (the tensor pool, behaviour).
// Tested by: tests/planner/memory/pinned_pool_test.cpp.

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "planner/memory/pinned_blocks.hpp"
#include "scenarios/types/bytes.hpp"
#include "scenarios/types/data_type.hpp"

namespace stowage::memory {

/// Stands for a tensor's shape and element type; equal keys mean buffers of equal size.
enum class PinnedKey : std::uint64_t {};

/// Numbers shapes and element types: the same pair, the same key. Tensors of one size and two shapes have two keys, and
/// so two queues.
class PinnedKeys {
public:
    PinnedKey key(const std::vector<std::int64_t>& shape, types::DataType type);
    [[nodiscard]] std::size_t size() const { return numbers_.size(); }

private:
    std::map<std::pair<std::vector<std::int64_t>, types::DataType>, PinnedKey> numbers_;
};

/// A buffer in use. Valid from `acquire` to `release`.
enum class PinnedHandle : std::uint32_t {};

struct PinnedStats {
    Bytes in_use;     ///< buffers acquired and not released
    Bytes requested;  ///< all buffers that exist: in use, or idle in the pool
    Bytes reserved;   ///< pinned memory taken from the system, blocks rounded
    Bytes peak_in_use;
    Bytes peak_requested;
    Bytes peak_reserved;
    std::int64_t system_allocations = 0;  ///< blocks taken from the system, each a slow call

    friend bool operator==(const PinnedStats&, const PinnedStats&) = default;
};

class PinnedPool {
public:
    /// Without `events` copies are taken to be done at once. Keeps the reference.
    explicit PinnedPool(const PinnedConfig& config = {}, StreamEvents* events = nullptr) : blocks_(config, events) {}

    /// A buffer of `bytes`; `pooled`: from the queue of `key`, otherwise afresh. New memory is taken from the system
    /// when no block is left, which `stats().system_allocations` tells. Throws: std::logic_error if the pool holds
    /// buffers of that key and another size.
    PinnedHandle acquire(PinnedKey key, Bytes bytes, bool pooled);
    /// Tells that a copy on `stream` uses the buffer.
    void record_stream(PinnedHandle buffer, Stream stream) { blocks_.record_stream(used(buffer).block, stream); }
    /// Throws: std::logic_error if the buffer is not in use.
    void release(PinnedHandle buffer);
    [[nodiscard]] const PinnedStats& stats() const { return stats_; }
    [[nodiscard]] const PinnedBlockStats& block_stats() const { return blocks_.stats(); }
    /// Tells buffers apart: the same number, the same memory.
    [[nodiscard]] std::uint32_t block_of(PinnedHandle buffer) const {
        return static_cast<std::uint32_t>(used(buffer).block);
    }
    /// Whether the next request has to ask about events.
    [[nodiscard]] bool holds_blocks() const { return blocks_.held() > 0; }

private:
    struct Buffer {
        PinnedKey key{};
        Bytes bytes;
        PinnedBlock block{};
        bool pooled = false;
        bool in_use = false;
    };
    /// First in, first out; entries before `head` are gone.
    struct Queue {
        Bytes bytes;
        std::vector<std::uint32_t> idle;
        std::size_t head = 0;
    };

    [[nodiscard]] const Buffer& used(PinnedHandle buffer) const;
    std::uint32_t make_buffer(PinnedKey key, Bytes bytes, bool pooled);
    void count_blocks();

    PinnedBlocks blocks_;
    PinnedStats stats_;
    std::vector<Buffer> buffers_;
    std::vector<std::uint32_t> spare_buffers_;
    std::unordered_map<std::uint64_t, Queue> pool_;
};

}  // namespace stowage::memory
