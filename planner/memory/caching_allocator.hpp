#pragma once

// The caching allocator of PyTorch: it decides the address of every tensor of a step, eager or captured in a graph.
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
// While a graph is captured, what its streams allocate comes from the private pool of the capture: segments of their
// own, which nothing else is lent and which are not given back as long as a graph that was captured with the pool
// exists. Events cannot be asked about during a capture: what is freed after use on other streams is held until no
// capture is under way, and then only for uses from before it. Nor is the cache given back to make room meanwhile.
//
// With expandable segments a stream and pool class has one range of addresses, larger than the device, that is mapped
// from the front in granules as the blocks in it need it. Best fit counts the unmapped part behind a block as its own,
// so that what can still grow is taken last. The cache is given back by whole granules inside free blocks: the hole is
// mapped again before the end of the segment grows. Statistics count what is mapped, no segments and no split blocks.
// Giving memory back waits for the device, where PyTorch waits for the stream of the segment alone.
//
// Limits: pools with an allocator of their own, pools lent when memory runs out, checkpoints of a pool, and switching
// the configuration while running are not modelled. Source: PyTorch 2.11, c10/cuda/CUDACachingAllocator.cpp (behaviour)
// and aten/src/ATen/cuda/CUDAGraph.cpp (when pools begin and end).
// Tested by: tests/planner/memory/, against traces recorded from PyTorch, operation by operation.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/memory/allocator_statistics.hpp"
#include "planner/memory/device_memory.hpp"
#include "planner/memory/fragmentation.hpp"
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
    std::int64_t device_frees = 0;        ///< segments given back or parts of them unmapped, over time
    std::int64_t retries = 0;             ///< times that the cache was given back because the device had no room
    std::int64_t out_of_memory = 0;       ///< requests that failed even then
    std::int64_t waits_for_events = 0;    ///< times that the host waited until no block was held

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
    std::optional<PoolId> pool;  ///< the private pool that the block belongs to
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
    /// Waits for the device, then gives every segment back that nothing in use shares. Segments of private pools stay
    /// unless the pool's graphs are all gone; during a capture, only such go, and nothing is waited for.
    void empty_cache();

    /// Begins a capture into `pool`, a new one or one that lives: from now on what `stream` allocates comes from it.
    /// It counts as one more graph of the pool. Before, torch.cuda.graph waits for the device and empties the cache
    /// (graph_registry.hpp). Throws: std::logic_error if the pool is being captured into, if all its graphs are gone,
    /// or if the stream is in a capture.
    void begin_capture(PoolId pool, Stream stream);
    /// Another stream becomes part of the capture, as one that waits for an event of it does, until the capture ends.
    /// Nothing changes if it is part of it already.
    void join_capture(PoolId pool, Stream stream);
    /// The graph exists from now on.
    void end_capture(PoolId pool);
    /// One graph of the pool is gone. With the last one its segments can be given back, once nothing in them is live.
    void release_pool(PoolId pool);
    [[nodiscard]] bool capturing() const { return captures_ > 0; }
    /// How many graphs live in the pool, the one being captured too.
    [[nodiscard]] std::int64_t graphs_of(PoolId pool) const;

    /// Gives everything back, live blocks too, and starts over; keeps its own storage.
    void reset();
    void reset_peaks();
    /// torch.cuda.reset_accumulated_memory_stats(): counts over time start from here, those of `stats` too.
    void reset_accumulated();
    void rebind(DeviceMemory& memory, StreamEvents& events);

    [[nodiscard]] const AllocatorStats& stats() const { return stats_; }
    /// Everything that torch.cuda.memory_stats() counts, by pool class. Cost: O(1).
    [[nodiscard]] MemoryStatistics statistics() const;
    /// What keeps a request for `size` bytes on `stream` from the memory that is reserved. Cost: O(blocks).
    [[nodiscard]] FragmentationReport fragmentation(Bytes size, Stream stream) const;
    /// Cost: O(1); O(blocks) in an expandable segment.
    [[nodiscard]] BlockPlace place(BlockHandle block) const;
    /// Throws: std::logic_error if the books do not balance: a segment that its blocks do not tile, two free
    /// neighbours, a free block missing from its list, or a total that is not the sum of its parts.
    /// Cost: O(blocks log blocks); for tests.
    void check_invariants() const;

private:
    using CacheIndex = std::uint16_t;
    using PoolSlot = std::uint16_t;
    static constexpr CacheIndex kNoCache = 0xFFFF;
    static constexpr PoolSlot kDefaultPool = 0xFFFF;
    static constexpr std::uint32_t kUnmapped = 0xFFFFFFFF;
    static constexpr std::uint32_t kDeferred = 0xFFFFFFFE;

    struct Block {
        Address address = 0;
        std::int64_t size = 0;
        std::int64_t requested = 0;         ///< while in use or held
        std::uint64_t used_by = 0;          ///< bit s: used on stream s, not the block's own
        std::uint64_t used_in_capture = 0;  ///< those of used_by that were told during a capture
        BlockIndex previous = kNoBlock;
        BlockIndex next = kNoBlock;
        std::uint32_t segment = 0;
        /// kUnmapped: no block but a hole in an expandable segment, never free. kDeferred: freed during a capture.
        std::uint32_t pending_events = 0;
        FreeList::Guess guess = FreeList::kNoGuess;
        CacheIndex cache = 0;
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
    /// The free blocks of one stream, pool class and pool, and the holes in its expandable segments.
    struct Cache {
        FreeList free;
        std::vector<BlockIndex> holes;  ///< by rising address
        Stream stream = 0;
        PoolClass pool = PoolClass::small;
        PoolSlot owner = kDefaultPool;
    };
    struct PrivatePool {
        PoolId id{};
        std::int64_t graphs = 0;
        std::int64_t segments = 0;
        std::uint64_t streams = 0;  ///< bit s: stream s is in the capture under way
        bool capturing = false;
        bool known = false;  ///< false: the slot is unused
        std::vector<CacheIndex> caches;
    };
    using Route = std::array<CacheIndex, 2>;  ///< by pool class
    struct HeldBlock {
        EventHandle event;
        BlockIndex block;
    };
    /// First in, first out; `head` is the oldest not yet complete.
    struct HeldQueue {
        std::vector<HeldBlock> blocks;
        std::size_t head = 0;
    };
    struct DeferredBlock {
        BlockIndex block = kNoBlock;
        std::vector<CaptureMark> marks;  ///< empty: held until no capture is under way
    };

    CacheIndex cache_for(Stream stream, PoolClass pool);
    [[nodiscard]] CacheIndex known_cache(Stream stream, PoolClass pool) const;
    [[nodiscard]] Bytes rounded(Bytes size) const;
    [[nodiscard]] Bytes granule_of(PoolClass pool) const { return granule(pool, config_.large_segment); }
    BlockIndex find_block(Bytes size, CacheIndex cache);
    [[nodiscard]] std::optional<FreeList::Entry> best_fit(Bytes size, CacheIndex cache) const;
    void count_search(CacheIndex cache);
    BlockIndex take_free_block(Bytes size, CacheIndex cache);
    BlockIndex reserve(Bytes size, CacheIndex cache);
    BlockIndex reserve_segment(Bytes size, CacheIndex cache);
    [[nodiscard]] bool allows(Bytes more) const { return stats_.reserved + more <= allowed_; }
    void count_reserved(PoolClass pool, Bytes size);
    void hand_out(BlockIndex index, Bytes size, Bytes requested);
    BlockIndex cut(BlockIndex index, std::int64_t size);
    void list_free(BlockIndex index);
    void unlist_free(BlockIndex index);
    void make_free(BlockIndex index);
    void end_hold(BlockIndex index);
    std::int64_t absorb_free(BlockIndex index, BlockIndex neighbour);
    void absorb_previous(BlockIndex index);
    void absorb_next(BlockIndex index);
    [[nodiscard]] bool is_free(BlockIndex index) const;
    BlockIndex new_block();
    std::uint32_t new_segment(Address base, Bytes size, BlockIndex first, CacheIndex cache);
    void forget_segment(std::uint32_t segment, CacheIndex cache);

    void look_at_held(Stream stream);
    void hold(BlockIndex index);
    void defer(BlockIndex index);
    void release_deferred();
    void lend_ordered_blocks(Stream stream);
    void release_completed();
    [[nodiscard]] bool is_captured(Stream stream) const { return owners_[stream] != kDefaultPool; }
    [[nodiscard]] PoolSlot slot_of(PoolId pool) const;
    PoolSlot new_pool(PoolId pool);
    void route(Stream stream, PoolSlot owner);
    void forget_empty_pools();

    bool release_oversize_blocks(Bytes size, CacheIndex cache);
    void release_cached_segments();
    void collect_garbage();
    [[nodiscard]] bool may_release(const Cache& cache) const;
    [[nodiscard]] std::vector<BlockIndex> cached_segments() const;
    void release_segment_of(BlockIndex index);

    [[nodiscard]] bool is_unmapped(BlockIndex index) const;
    [[nodiscard]] std::int64_t expandable_size(const FreeList::Entry& entry) const;
    [[nodiscard]] FreeList::Entry best_fit_to_grow(const FreeList& list, FreeList::Entry found) const;
    [[nodiscard]] BlockIndex find_room(Bytes size, CacheIndex cache) const;
    [[nodiscard]] bool has_room_from(BlockIndex index, Bytes size) const;
    BlockIndex expand(Bytes size, CacheIndex cache);
    BlockIndex reserve_range(CacheIndex cache);
    bool map(BlockIndex index, Bytes size);
    [[nodiscard]] GranuleRange whole_granules_of(BlockIndex index) const;
    void unmap(BlockIndex index);
    void list_unmapped(BlockIndex index);
    void unlist_unmapped(BlockIndex index);
    void release_range(BlockIndex index);
    void unmap_segment(const Segment& segment);

    /// What check_invariants adds up.
    struct Totals {
        Bytes allocated, active, reserved, inactive_split, requested;
        std::int64_t segments = 0;
        std::int64_t allocated_blocks = 0;
        std::int64_t active_blocks = 0;
        std::int64_t split_blocks = 0;
        std::size_t free_blocks = 0;
        std::size_t holes = 0;
        std::size_t held_events = 0;
        std::size_t deferred = 0;
        std::vector<std::int64_t> pool_segments;
    };
    [[nodiscard]] Obstacle obstacle_of(const Cache& cache, Bytes wanted, Stream stream) const;
    void check_segment(std::uint32_t slot, Totals& totals) const;
    void add_to(Totals& totals, BlockIndex index) const;
    void check_lists(const Totals& totals) const;
    void check_held(const Totals& totals) const;
    void check_pools(const Totals& totals) const;
    void check_totals(const Totals& totals) const;

    AllocatorConfig config_;
    DeviceMemory* memory_;
    StreamEvents* events_;
    AllocatorStats stats_;
    StatisticsCounter counter_;
    std::vector<Block> blocks_;
    std::vector<BlockIndex> spare_blocks_;
    std::vector<Segment> segments_;
    std::vector<std::uint32_t> spare_segments_;
    std::vector<Cache> caches_;
    std::vector<CacheIndex> spare_caches_;
    std::array<Route, kMaxStreams> routes_;          ///< where each stream allocates now
    std::array<Route, kMaxStreams> default_routes_;  ///< where it does outside captures
    std::array<PoolSlot, kMaxStreams> owners_;       ///< the pool that each stream is being captured into
    std::vector<PrivatePool> pools_;
    std::vector<HeldQueue> held_;     ///< by the stream of the event
    std::uint64_t held_streams_ = 0;  ///< bit s: held_[s] is not empty
    std::vector<DeferredBlock> deferred_;
    std::int64_t captures_ = 0;
    std::uint64_t next_segment_number_ = 0;
    Bytes allowed_;                         ///< what may be reserved
    std::uint64_t searches_ = 0;            ///< in the large default pool, counted only where garbage is collected
    std::vector<std::uint64_t> listed_at_;  ///< by block: searches_ when it became free, likewise
    bool rounds_to_divisions_;
    bool counts_inactive_;
    bool collects_garbage_;
};

}  // namespace stowage::memory
