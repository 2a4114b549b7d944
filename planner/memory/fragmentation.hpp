#pragma once

// Why a request found no memory: what the caching allocator has reserved, and what keeps each part of it from serving
// the request.
//
// Tested by: tests/planner/memory/fragmentation_test.cpp.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/memory/device_memory.hpp"
#include "planner/memory/size_rules.hpp"
#include "scenarios/types/bytes.hpp"

namespace stowage::memory {

/// What keeps the free blocks of one stream, class and pool from serving a request; the first that applies.
enum class Obstacle : std::uint8_t {
    none,          ///< the largest of them is large enough
    other_pool,    ///< the request is not served from that pool
    other_class,   ///< blocks up to 1 MiB and larger ones do not share segments
    other_stream,  ///< they belong to another stream
    too_small,     ///< the largest is smaller than the request
    kept_whole,    ///< large enough, but max_split_size keeps them from being cut or lent
};

/// The blocks of one stream, class and pool.
struct CacheReport {
    std::optional<PoolId> pool;  ///< nothing: the default pool
    Stream stream = 0;
    PoolClass pool_class = PoolClass::small;
    Obstacle obstacle = Obstacle::none;
    Bytes allocated;
    Bytes held;  ///< freed, but waiting for other streams or for the end of a capture
    Bytes free;
    Bytes largest_free;
    std::int64_t free_blocks = 0;

    friend bool operator==(const CacheReport&, const CacheReport&) = default;
};

struct FragmentationReport {
    Bytes request;
    Bytes block;   ///< the request rounded up
    Bytes growth;  ///< what would have to be asked of the device
    Stream stream = 0;
    std::optional<PoolId> pool;  ///< that the request would be served from
    Bytes limit;                 ///< what may be reserved: the device, or the part of it that is allowed
    Bytes reserved, allocated, held, free;
    Bytes reserved_by_private_pools;  ///< the rest is the default pool's
    Bytes free_in_private_pools;
    Bytes largest_free;               ///< of the stream, class and pool of the request
    Bytes free_beside;                ///< free, but of another stream, class or pool
    std::vector<CacheReport> caches;  ///< those that hold anything
    bool capturing = false;           ///< nothing is given back to make room meanwhile

    friend bool operator==(const FragmentationReport&, const FragmentationReport&) = default;
};

/// A sentence or two for the reader of an error: what was asked for, where the memory is, and what would help most.
std::string explain(const FragmentationReport& report);

}  // namespace stowage::memory
