#pragma once

// Pinned host memory of one rank, as Megatron's offload manager takes it.
//
// Two layers. Below, PyTorch's allocator of pinned memory: every block is a power of two, a block given back is kept
// for the next request of that size, nothing returns to the system. Above, Megatron's pool: buffers of one shape and
// type share a queue, the one that has been free longest is taken first, a new one is made when none is free, and none
// is ever dropped. Groups of the experts bypass the pool, since their shapes vary: they take a block of the lower layer
// each time and give it back.
//
// Worked example: two pooled buffers of 24 MiB live at once, then both free: requested 48 MiB, reserved 2 x 32 MiB, and
// both stay. A bypassing buffer of 24 MiB then adds a third block, since the two belong to the pool.
//
// Limits: when a buffer may be taken again is the caller's knowledge (Megatron: as soon as its reload is enqueued).
// Source: Megatron-LM, fine_grained_activation_offload.py (the tensor pool, behaviour); PyTorch, CachingHostAllocator.
// Tested by: tests/planner/memory/pinned_pool_test.cpp.

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

using types::Bytes;

/// Stands for a tensor's shape and element type; equal keys mean buffers of equal size.
enum class PinnedKey : std::uint64_t {};

/// A buffer in use. Valid from `acquire` to `release`.
enum class PinnedHandle : std::uint32_t {};

struct PinnedStats {
    Bytes in_use;     ///< buffers acquired and not released
    Bytes requested;  ///< all buffers that exist: in use, or idle in the pool
    Bytes reserved;   ///< pinned memory taken from the system, blocks rounded; never falls
    Bytes peak_in_use;
    Bytes peak_requested;
    std::int64_t system_allocations = 0;  ///< blocks taken from the system, each a slow call

    friend bool operator==(const PinnedStats&, const PinnedStats&) = default;
};

class PinnedPool {
public:
    /// A buffer of `bytes`; `pooled`: from the queue of `key`, otherwise afresh. New memory is taken from the system
    /// when no block is left, which `stats().system_allocations` tells. Throws: std::logic_error if the pool holds
    /// buffers of that key and another size.
    PinnedHandle acquire(PinnedKey key, Bytes bytes, bool pooled);
    /// Throws: std::logic_error if the buffer is not in use.
    void release(PinnedHandle buffer);
    [[nodiscard]] const PinnedStats& stats() const { return stats_; }
    /// Tells buffers apart: the same number, the same memory.
    [[nodiscard]] std::uint32_t block_of(PinnedHandle buffer) const;
    void reset() { *this = PinnedPool{}; }

private:
    struct Buffer {
        PinnedKey key{};
        std::int64_t bytes = 0;
        std::uint32_t block = 0;
        bool pooled = false;
        bool in_use = false;
    };
    /// First in, first out; entries before `head` are gone.
    struct Queue {
        std::int64_t bytes = 0;
        std::vector<std::uint32_t> idle;
        std::size_t head = 0;
    };

    std::uint32_t make_buffer(PinnedKey key, Bytes bytes, bool pooled);
    std::uint32_t take_block(Bytes bytes);

    PinnedStats stats_;
    std::vector<Buffer> buffers_;
    std::vector<std::uint32_t> spare_buffers_;
    std::unordered_map<std::uint64_t, Queue> pool_;
    std::array<std::vector<std::uint32_t>, 63> free_blocks_;  ///< by the logarithm of their size
    std::uint32_t next_block_ = 0;
};

}  // namespace stowage::memory
