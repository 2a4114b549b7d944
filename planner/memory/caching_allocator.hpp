#pragma once

// The caching allocator of PyTorch, for eager execution: it decides the address of every tensor of a step.
//
// A request is rounded up to 512 bytes and served by the free block of its stream and pool class that fits best
// (smallest, then lowest). If there is none, a new segment is reserved from the device. A block much larger than the
// request is split; a freed block joins the free neighbours in its segment. A block that other streams have used is
// held after its free until events recorded there at that moment are complete, which is looked at only when something
// is allocated. When the device has no room, cached segments are given back and the reservation is tried again.
//
// Worked example, stream 0: 1.5 MiB takes the first part of a new 20 MiB segment; 18 MiB takes the 18.5 MiB behind it
// whole, since 0.5 MiB is too little to split off, so allocated grows by 18.5 MiB. Both freed: one free block of 20
// MiB.
//
// With expandable segments a stream and pool class has one range of addresses, larger than the device, that is mapped
// from the front in granules as the blocks in it need it. Best fit counts the unmapped part behind a block as its own,
// so that what can still grow is taken last. The cache is given back by whole granules inside free blocks: the hole is
// mapped again before the end of the segment grows. Statistics count what is mapped, no segments and no split blocks.
// Giving memory back waits for the device, where PyTorch waits for the stream of the segment alone.
//
// Limits: private pools of graph captures, garbage collection, the per-process memory fraction and expandable segments
// together with a split limit are not modelled. Source: PyTorch 2.11, c10/cuda/CUDACachingAllocator.cpp (behaviour).
// Tested by: tests/planner/memory/, against traces recorded from PyTorch, operation by operation.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/device_memory.hpp"
#include "planner/memory/free_list.hpp"
#include "planner/memory/size_rules.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

/// A live block. Valid from `allocate` to `free`.
enum class BlockHandle : std::uint32_t {};

/// What torch.cuda.memory_stats() would say, in bytes and counts since the start or the last reset.
struct AllocatorStats {
    Bytes allocated;       ///< blocks in use, whole blocks
    Bytes active;          ///< the same and blocks freed but held for other streams
    Bytes reserved;        ///< segments; of expandable ones what is mapped
    Bytes inactive_split;  ///< free blocks that share their segment; not counted in expandable ones
    Bytes peak_allocated;
    Bytes peak_active;
    Bytes peak_reserved;
    std::int64_t segments = 0;            ///< not counting expandable ones
    std::int64_t device_allocations = 0;  ///< segments reserved or parts of them mapped, over time
    std::int64_t retries = 0;             ///< times that the cache was given back because the device had no room
    std::int64_t out_of_memory = 0;       ///< requests that failed even then

    friend bool operator==(const AllocatorStats&, const AllocatorStats&) = default;
};

/// Where a block lies. In an expandable segment what is mapped around it without a hole is called its segment, as
/// torch.cuda.memory_snapshot() does, save for the number: that of the whole range.
struct BlockPlace {
    Address address = 0;
    Bytes size;
    std::uint64_t segment = 0;  ///< number of its segment, counted over all that were ever reserved
    Bytes offset;               ///< from the start of the segment
    Bytes segment_size;
};

/// Copies share the backends of the original; `rebind` gives a copy its own.
class CachingAllocator {
public:
    CachingAllocator(const AllocatorConfig& config, DeviceMemory& memory, StreamEvents& events);

    /// A block of at least `size` bytes for use on `stream`, or nothing: out of memory after everything was tried.
    /// Cost: O(1) where a cached block of that size is free, else O(log) in the number of distinct free sizes.
    std::optional<BlockHandle> allocate(Bytes size, Stream stream);
    /// Whether `allocate` would find a block without asking the device, going by the events that are complete by now.
    /// If not, and the device has no room for a segment either, `allocate` waits for the device.
    [[nodiscard]] bool has_block(Bytes size, Stream stream);
    /// What `allocate` would first ask of the device if no cached block fits: a segment, or the part of an expandable
    /// one that is to be mapped.
    [[nodiscard]] Bytes growth(Bytes size, Stream stream) const;
    /// Throws: std::logic_error if the block is not live.
    void free(BlockHandle block);
    /// Tells that work on `stream` uses the block: its memory is not reused before that work is done.
    void record_stream(BlockHandle block, Stream stream);
    /// Waits for the device, then gives every segment back that nothing in use shares.
    void empty_cache();
    /// Gives everything back, live blocks too, and starts over; keeps its own storage.
    void reset();
    void reset_peaks();
    void rebind(DeviceMemory& memory, StreamEvents& events);

    [[nodiscard]] const AllocatorStats& stats() const { return stats_; }
    /// Cost: O(1); O(blocks) in an expandable segment.
    [[nodiscard]] BlockPlace place(BlockHandle block) const;
    /// Throws: std::logic_error if the books do not balance: a segment that its blocks do not tile, two free
    /// neighbours, a free block missing from its list, or a total that is not the sum of its parts.
    /// Cost: O(blocks log blocks); for tests.
    void check_invariants() const;

private:
    struct Block {
        Address address = 0;
        std::int64_t size = 0;
        std::uint64_t used_by = 0;  ///< bit s: used on stream s, not the block's own
        BlockIndex previous = kNoBlock;
        BlockIndex next = kNoBlock;
        std::uint32_t segment = 0;
        std::uint32_t pending_events = 0;  ///< kUnmapped: no block but a hole in an expandable segment, never free
        std::uint16_t stream = 0;
        PoolClass pool = PoolClass::small;
        bool allocated = false;
        [[nodiscard]] bool shares_segment() const { return previous != kNoBlock || next != kNoBlock; }
    };
    struct Segment {
        Address base = 0;
        std::int64_t size = 0;
        std::uint64_t number = 0;
        BlockIndex first = kNoBlock;  ///< kNoBlock: the slot is unused
    };
    struct HeldBlock {
        EventHandle event;
        BlockIndex block;
    };
    static constexpr std::uint32_t kUnmapped = 0xFFFFFFFF;
    /// First in, first out; `head` is the oldest not yet complete.
    struct HeldQueue {
        std::vector<HeldBlock> blocks;
        std::size_t head = 0;
    };

    static std::size_t list_of(Stream stream, PoolClass pool);
    FreeList& free_list(Stream stream, PoolClass pool);
    BlockIndex find_block(Bytes size, Stream stream, PoolClass pool);
    BlockIndex take_free_block(Bytes size, Stream stream, PoolClass pool);
    BlockIndex reserve_segment(Bytes size, Stream stream, PoolClass pool);
    void hand_out(BlockIndex index, Bytes size);
    BlockIndex cut(BlockIndex index, std::int64_t size);
    void list_free(BlockIndex index);
    void unlist_free(BlockIndex index);
    void hold(BlockIndex index);
    void release_completed();
    void make_free(BlockIndex index);
    void merge_previous(BlockIndex index);
    void merge_next(BlockIndex index);
    void absorb_previous(BlockIndex index);
    void absorb_next(BlockIndex index);
    void count_inactive(std::int64_t bytes) { stats_.inactive_split += Bytes{bytes & inactive_mask_}; }
    /// What check_invariants adds up.
    struct Totals {
        Bytes allocated, active, reserved, inactive_split;
        std::int64_t segments = 0;
        std::size_t free_blocks = 0;
        std::size_t holes = 0;
    };
    void check_segment(std::uint32_t slot, Totals& totals) const;
    void add_to(Totals& totals, BlockIndex index) const;
    void check_lists(const Totals& totals) const;
    [[nodiscard]] bool is_free(BlockIndex index) const;
    bool release_oversize_blocks(Bytes size, Stream stream, PoolClass pool);
    void release_cached_segments();
    [[nodiscard]] std::vector<BlockIndex> cached_segments() const;
    void release_segment_of(BlockIndex index);
    BlockIndex new_block();
    std::uint32_t new_segment();

    [[nodiscard]] bool is_unmapped(BlockIndex index) const;
    [[nodiscard]] std::int64_t expandable_size(const FreeList::Entry& entry) const;
    [[nodiscard]] FreeList::Entry best_fit_to_grow(const FreeList& list, FreeList::Entry found) const;
    [[nodiscard]] BlockIndex find_room(Bytes size, Stream stream, PoolClass pool) const;
    [[nodiscard]] bool has_room_from(BlockIndex index, Bytes size) const;
    BlockIndex expand(Bytes size, Stream stream, PoolClass pool);
    BlockIndex reserve_range(Stream stream, PoolClass pool);
    bool map(BlockIndex index, Bytes size);
    [[nodiscard]] GranuleRange whole_granules_of(BlockIndex index) const;
    void unmap(BlockIndex index);
    void list_unmapped(BlockIndex index);
    void unlist_unmapped(BlockIndex index);
    void release_range(BlockIndex index);
    void unmap_segment(const Segment& segment);

    AllocatorConfig config_;
    DeviceMemory* memory_;
    StreamEvents* events_;
    AllocatorStats stats_;
    std::vector<Block> blocks_;
    std::vector<BlockIndex> spare_blocks_;
    std::vector<Segment> segments_;
    std::vector<std::uint32_t> spare_segments_;
    std::vector<FreeList> free_lists_;               ///< by stream and pool class
    std::vector<std::vector<BlockIndex>> unmapped_;  ///< holes by stream and pool class, each list by rising address
    std::vector<HeldQueue> held_;                    ///< by the stream of the event
    std::uint64_t held_streams_ = 0;                 ///< bit s: held_[s] is not empty
    std::uint64_t next_segment_number_ = 0;
    std::int64_t inactive_mask_;  ///< all bits, or none where split blocks are not counted
};

}  // namespace stowage::memory
