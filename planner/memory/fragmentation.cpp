#include "planner/memory/fragmentation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "planner/memory/caching_allocator.hpp"

namespace stowage::memory {
namespace {

std::string in_words(Bytes bytes) {
    constexpr Bytes kMiB{1LL << 20};
    constexpr Bytes kGiB{1LL << 30};
    if (bytes < kMiB) return fmt::format("{} bytes", bytes.count);
    return bytes < kGiB ? fmt::format("{:.2f} MiB", types::in_mib(bytes))
                        : fmt::format("{:.2f} GiB", types::in_gib(bytes));
}

/// What would help most, by what holds the most free memory back.
std::string_view advice(const FragmentationReport& report) {
    const Bytes own = report.free - report.free_beside;
    const Bytes room = report.limit - report.reserved;
    if (report.free + room < report.growth) return "All of the memory is in use.";
    if (report.capturing) return "Nothing is given back while a graph is captured: empty the cache before.";
    if (report.free_in_private_pools >= own && report.free_in_private_pools.count > 0)
        return "Most of what is free belongs to the private pools of graphs: let graphs share a pool.";
    if (report.held >= own && report.held.count > 0) return "Most of it waits for work on other streams.";
    return "What is free lies in pieces between live blocks: expandable segments would join them.";
}

}  // namespace

Obstacle CachingAllocator::obstacle_of(const Cache& cache, Bytes wanted, Stream stream) const {
    if (cache.owner != owners_[stream]) return Obstacle::other_pool;
    if (cache.pool != pool_class(wanted)) return Obstacle::other_class;
    if (cache.stream != stream) return Obstacle::other_stream;
    const std::optional<FreeList::Entry> fit = cache.free.best_fit(wanted);
    if (!fit) return Obstacle::too_small;
    return may_serve(config_, fit->size, wanted) ? Obstacle::none : Obstacle::kept_whole;
}

FragmentationReport CachingAllocator::fragmentation(Bytes size, Stream stream) const {
    FragmentationReport report;
    report.request = size;
    report.block = rounded(size);
    report.growth = growth(size, stream);
    report.stream = stream;
    if (is_captured(stream)) report.pool = pools_[owners_[stream]].id;
    report.limit = std::min(allowed_, memory_->capacity());
    report.reserved = stats_.reserved;
    report.allocated = stats_.allocated;
    report.held = stats_.active - stats_.allocated;
    report.free = stats_.reserved - stats_.active;
    report.capturing = capturing();

    std::vector<CacheReport> all(caches_.size());
    for (const Segment& segment : segments_)
        for (BlockIndex index = segment.first; index != kNoBlock; index = blocks_[index].next) {
            const Block& block = blocks_[index];
            CacheReport& cache = all[block.cache];
            if (is_unmapped(index)) continue;
            (block.allocated ? cache.allocated : is_free(index) ? cache.free : cache.held) += Bytes{block.size};
            if (!is_free(index)) continue;
            ++cache.free_blocks;
            cache.largest_free = std::max(cache.largest_free, Bytes{block.size});
        }
    for (std::size_t i = 0; i < all.size(); ++i) {
        CacheReport& one = all[i];
        const Bytes reserved = one.allocated + one.held + one.free;
        if (reserved.count == 0) continue;
        const Cache& cache = caches_[i];
        one.stream = cache.stream;
        one.pool_class = cache.pool;
        one.obstacle = obstacle_of(cache, report.block, stream);
        if (cache.owner != kDefaultPool) {
            one.pool = pools_[cache.owner].id;
            report.reserved_by_private_pools += reserved;
            report.free_in_private_pools += one.free;
        }
        const bool beside = one.obstacle == Obstacle::other_pool || one.obstacle == Obstacle::other_class ||
                            one.obstacle == Obstacle::other_stream;
        if (beside)
            report.free_beside += one.free;
        else
            report.largest_free = one.largest_free;
        report.caches.push_back(one);
    }
    return report;
}

std::string explain(const FragmentationReport& report) {
    std::string text = fmt::format(
        "{} on stream {} found no memory: {} more would have to be reserved beside {} of {}. ", in_words(report.block),
        report.stream, in_words(report.growth), in_words(report.reserved), in_words(report.limit));
    text += fmt::format(
        "Of what is reserved, {} is in use, {} waits for other streams and {} is free: {} where the "
        "request looks, the largest block {}, and {} of other streams, classes or pools. ",
        in_words(report.allocated), in_words(report.held), in_words(report.free),
        in_words(report.free - report.free_beside), in_words(report.largest_free), in_words(report.free_beside));
    if (report.reserved_by_private_pools.count > 0)
        text += fmt::format("Private pools of graphs have {}, {} of it free. ",
                            in_words(report.reserved_by_private_pools), in_words(report.free_in_private_pools));
    text += advice(report);
    return text;
}

}  // namespace stowage::memory
