#pragma once

// Pinned host memory of one process, as PyTorch's caching allocator of it hands it out.
//
// A request is rounded up to a power of two and served by the block of that size that came free last, else by a new one
// from the system. A block that copies have used is held after its free until events recorded on their streams at that
// moment are complete. Events are asked about only when something is requested, oldest free first, and the first one
// that is not complete ends the round: a slow stream holds back what was freed after it. Nothing is ever split, and
// nothing returns to the system until the cache is emptied. A block requested under stream capture that a copy has used
// never comes back, since a graph may write to it at any replay.
//
// Three settings of PYTORCH_CUDA_ALLOC_CONF change this. Above `pinned_max_round_threshold_mb` nothing is rounded.
// Above `pinned_max_cached_size_mb` nothing is rounded either, and a block returns to the system as soon as its copies
// are done. `pinned_reserve_segment_size_mb` takes one segment from the system at the first request; new blocks are cut
// from its front, in pages, while they fit, and never leave it.
//
// Worked example, both limits at 1 GiB: 0.9 GiB takes 1 GiB, which the next such request takes again. 1.5 GiB takes
// 1.5 GiB and gives it back: a step that asks for it again pays the system's allocation again.
//
// Limits: private pools of captures and background threads are not modelled. Where blocks of several sizes share a size
// class, the one freed last that is large enough is taken; PyTorch before August 2026 took the last one, large enough
// or not. Source: PyTorch 2.11, ATen/core/CachingHostAllocator.h, ATen/cuda/CachingHostAllocator.cpp; the two limits
// are newer (pull requests 171662 and 192722). Tested by: tests/planner/memory/pinned_blocks_test.cpp.

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "planner/memory/device_memory.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

/// What PYTORCH_CUDA_ALLOC_CONF says about pinned memory; PyTorch's defaults.
struct PinnedConfig {
    std::optional<Bytes> max_round_threshold{};
    std::optional<Bytes> max_cached_size{};
    Bytes reserve_segment{};  ///< 0: none
};

/// A block handed out. Valid from `allocate` to `free`.
enum class PinnedBlock : std::uint32_t {};

struct PinnedBlockStats {
    Bytes active;    ///< blocks handed out, or freed and held for a stream
    Bytes reserved;  ///< taken from the system and not given back: blocks, and the reserve segment whole
    Bytes peak_active;
    Bytes peak_reserved;
    std::int64_t system_allocations = 0;  ///< each a slow call that locks pages
    std::int64_t system_frees = 0;

    friend bool operator==(const PinnedBlockStats&, const PinnedBlockStats&) = default;
};

class PinnedBlocks {
public:
    /// Without `events` copies are taken to be done at once. Keeps the reference.
    explicit PinnedBlocks(const PinnedConfig& config = {}, StreamEvents* events = nullptr)
        : config_(config), events_(events) {}

    /// A block of at least `bytes`, more than 0. Cost: O(1) beside the events asked about, while blocks of a size class
    /// are equal.
    PinnedBlock allocate(Bytes bytes, bool capturing = false);
    /// Tells that a copy on `stream` uses the block.
    void record_stream(PinnedBlock block, Stream stream);
    /// Throws: std::logic_error if the block is not handed out.
    void free(PinnedBlock block);
    /// Gives back to the system what is free, as torch's host_empty_cache does; a reserve segment stays.
    void empty_cache();

    [[nodiscard]] Bytes size(PinnedBlock block) const { return block_of(block).size; }
    [[nodiscard]] const PinnedBlockStats& stats() const { return stats_; }
    /// Freed blocks that still wait for a stream.
    [[nodiscard]] std::size_t held() const { return held_.size(); }

private:
    struct Block {
        Bytes size;
        std::uint64_t used_on = 0;  ///< bit s: by a copy on stream s
        std::uint32_t pending = 0;  ///< events not known to be complete
        bool handed_out = false;
        bool captured = false;
        bool in_segment = false;
    };
    struct Held {
        EventHandle event;
        std::uint32_t block;
    };

    [[nodiscard]] const Block& block_of(PinnedBlock block) const;
    [[nodiscard]] bool cached_when_free(Bytes size) const;
    [[nodiscard]] Bytes block_bytes(Bytes bytes) const;
    std::optional<std::uint32_t> take_free(Bytes size);
    std::uint32_t take_new(Bytes size);
    bool cut_from_segment(Bytes size);
    void take_from_system(Bytes bytes);
    void process_events();
    void hold(std::uint32_t index);
    void make_free(std::uint32_t index);
    void give_back(std::uint32_t index);

    PinnedConfig config_;
    StreamEvents* events_;
    PinnedBlockStats stats_;
    std::vector<Block> blocks_;
    std::vector<std::uint32_t> spare_;
    std::array<std::vector<std::uint32_t>, 63> free_;  ///< by the logarithm of the size, rounded up; last freed last
    std::deque<Held> held_;                            ///< oldest free first
    std::optional<Bytes> segment_left_;                ///< of the reserve segment, once taken
};

}  // namespace stowage::memory
