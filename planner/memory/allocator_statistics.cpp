#include "planner/memory/allocator_statistics.hpp"

#include <algorithm>
#include <string_view>

namespace stowage::memory {

void Statistic::change(std::int64_t by) {
    current += by;
    peak = std::max(peak, current);
    (by > 0 ? allocated : freed) += by > 0 ? by : -by;
}

void StatisticByPool::change(PoolClass pool, std::int64_t by) {
    all.change(by);
    of(pool).change(by);
}

StatisticsCounter::Levels StatisticsCounter::levels_of(const Sums& sums) {
    const std::int64_t blocks = sums.added[kBlocks] - sums.released[kBlocks];
    const std::int64_t bytes = sums.added[kBytes] - sums.released[kBytes];
    return {blocks - sums.held_blocks,
            bytes - sums.held_bytes,
            blocks,
            bytes,
            sums.added[kRequested] - sums.released[kRequested],
            sums.split[kBlocks],
            sums.split[kBytes]};
}

// What is added to one class is added to both, so each class may only go as far as the other leaves room: half of it.
void StatisticsCounter::look_at_peaks() {
    std::array<Levels, 3> levels{levels_of(sums_[0]), levels_of(sums_[1]), Levels{}};
    std::array<Levels, 3> room{};
    for (std::size_t i = 0; i < levels[2].size(); ++i) levels[2][i] = levels[0][i] + levels[1][i];
    for (std::size_t which = 0; which < levels.size(); ++which) {
        for (std::size_t i = 0; i < levels[which].size(); ++i) {
            peaks_[which][i] = std::max(peaks_[which][i], levels[which][i]);
            room[which][i] = peaks_[which][i] - levels[which][i];
        }
    }
    for (std::size_t which = 0; which < sums_.size(); ++which) {
        const auto least = [&](std::size_t i) { return std::min(room[which][i], room[2][i] / 2); };
        sums_[which].blocks_to_a_peak = std::min(least(0), least(2));
        sums_[which].bytes_to_a_peak = std::min({least(1), least(3), least(4)});
        sums_[which].split_to_a_peak = {least(5), least(6)};
    }
}

StatisticsCounter::Sums StatisticsCounter::total() const {
    Sums all = sums_[0];
    for (std::size_t i = 0; i < kQuantities; ++i) {
        all.added[i] += sums_[1].added[i];
        all.released[i] += sums_[1].released[i];
    }
    for (std::size_t i = 0; i < all.split.size(); ++i) {
        all.split[i] += sums_[1].split[i];
        all.split_added[i] += sums_[1].split_added[i];
    }
    all.held_blocks += sums_[1].held_blocks;
    all.held_bytes += sums_[1].held_bytes;
    return all;
}

namespace {

/// The statistics that memory_stats() lists by pool.
constexpr std::array kByPool{
    &MemoryStatistics::active,          &MemoryStatistics::active_bytes,   &MemoryStatistics::allocated_bytes,
    &MemoryStatistics::allocation,      &MemoryStatistics::inactive_split, &MemoryStatistics::inactive_split_bytes,
    &MemoryStatistics::requested_bytes, &MemoryStatistics::reserved_bytes, &MemoryStatistics::segment};

}  // namespace

void StatisticsCounter::reset_peaks() {
    peaks_ = {levels_of(sums_[0]), levels_of(sums_[1]), levels_of(total())};
    look_at_peaks();
    for (const auto member : kByPool)
        for (Statistic* one : {&(rest_.*member).all, &(rest_.*member).large_pool, &(rest_.*member).small_pool})
            one->peak = one->current;
    rest_.oversize_allocations.peak = rest_.oversize_allocations.current;
    rest_.oversize_segments.peak = rest_.oversize_segments.current;
}

void StatisticsCounter::reset_accumulated() {
    base_ = {sums_[0], sums_[1], total()};
    const auto forget = [](Statistic& one) { one.allocated = one.freed = 0; };
    for (const auto member : kByPool)
        for (Statistic* one : {&(rest_.*member).all, &(rest_.*member).large_pool, &(rest_.*member).small_pool})
            forget(*one);
    forget(rest_.oversize_allocations);
    forget(rest_.oversize_segments);
}

MemoryStatistics StatisticsCounter::statistics() const {
    MemoryStatistics result = rest_;
    const std::array<Sums, 3> sums{sums_[0], sums_[1], total()};
    const auto pick = [](StatisticByPool& by_pool, std::size_t which) -> Statistic& {
        return which == 0 ? by_pool.small_pool : which == 1 ? by_pool.large_pool : by_pool.all;
    };
    for (std::size_t which = 0; which < sums.size(); ++which) {
        const Sums& all = sums[which];
        const Sums& base = base_[which];
        const Levels levels = levels_of(all);
        const std::array<StatisticByPool*, 7> where{
            &result.allocation,          &result.allocated_bytes, &result.active,
            &result.active_bytes,        &result.requested_bytes, &result.inactive_split,
            &result.inactive_split_bytes};
        const std::int64_t blocks = all.added[kBlocks] - base.added[kBlocks];
        const std::int64_t bytes = all.added[kBytes] - base.added[kBytes];
        // What was taken away is what was added less what there is more than at the reset.
        const Levels added{blocks,
                           bytes,
                           blocks,
                           bytes,
                           all.added[kRequested] - base.added[kRequested],
                           all.split_added[kBlocks] - base.split_added[kBlocks],
                           all.split_added[kBytes] - base.split_added[kBytes]};
        const Levels before = levels_of(base);
        for (std::size_t i = 0; i < levels.size(); ++i)
            pick(*where[i], which) = {levels[i], peaks_[which][i], added[i], added[i] - (levels[i] - before[i])};
    }
    return result;
}

std::vector<std::pair<std::string, std::int64_t>> named_statistics(const MemoryStatistics& statistics) {
    std::vector<std::pair<std::string, std::int64_t>> named;
    const auto add = [&](const std::string& name, const Statistic& one) {
        named.emplace_back(name + ".allocated", one.allocated);
        named.emplace_back(name + ".current", one.current);
        named.emplace_back(name + ".freed", one.freed);
        named.emplace_back(name + ".peak", one.peak);
    };
    constexpr std::array<std::string_view, kByPool.size()> kNames{
        "active",          "active_bytes",   "allocated_bytes", "allocation", "inactive_split", "inactive_split_bytes",
        "requested_bytes", "reserved_bytes", "segment"};
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        const StatisticByPool& by_pool = statistics.*kByPool[i];
        const std::string name(kNames[i]);
        add(name + ".all", by_pool.all);
        add(name + ".large_pool", by_pool.large_pool);
        add(name + ".small_pool", by_pool.small_pool);
    }
    add("oversize_allocations", statistics.oversize_allocations);
    add("oversize_segments", statistics.oversize_segments);
    named.emplace_back("max_split_size", statistics.max_split_size);
    named.emplace_back("num_alloc_retries", statistics.num_alloc_retries);
    named.emplace_back("num_device_alloc", statistics.num_device_alloc);
    named.emplace_back("num_device_free", statistics.num_device_free);
    named.emplace_back("num_ooms", statistics.num_ooms);
    named.emplace_back("num_sync_all_streams", statistics.num_sync_all_streams);
    std::sort(named.begin(), named.end());
    return named;
}

}  // namespace stowage::memory
