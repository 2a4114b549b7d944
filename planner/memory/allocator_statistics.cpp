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
    return {sums.added[kBlocks] - sums.freed_blocks, sums.added[kBytes] - sums.freed_bytes,
            sums.added[kBlocks] - sums.released[kBlocks], sums.added[kBytes] - sums.released[kBytes],
            sums.added[kRequested] - sums.released[kRequested]};
}

void StatisticsCounter::look_at_peaks() {
    const Levels small = levels_of(sums_[0]);
    const Levels large = levels_of(sums_[1]);
    for (std::size_t i = 0; i < small.size(); ++i) {
        peaks_[0][i] = std::max(peaks_[0][i], small[i]);
        peaks_[1][i] = std::max(peaks_[1][i], large[i]);
        peaks_[2][i] = std::max(peaks_[2][i], small[i] + large[i]);
    }
    peaks_are_stale_ = false;
}

StatisticsCounter::Sums StatisticsCounter::total() const {
    Sums all = sums_[0];
    for (std::size_t i = 0; i < kQuantities; ++i) {
        all.added[i] += sums_[1].added[i];
        all.released[i] += sums_[1].released[i];
    }
    all.freed_blocks += sums_[1].freed_blocks;
    all.freed_bytes += sums_[1].freed_bytes;
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
    const Sums all = total();
    peaks_ = {levels_of(sums_[0]), levels_of(sums_[1]), levels_of(all)};
    peaks_are_stale_ = false;
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
    StatisticsCounter now = *this;
    now.look_at_peaks();
    const std::array<Sums, 3> sums{sums_[0], sums_[1], total()};
    const auto pick = [](StatisticByPool& by_pool, std::size_t which) -> Statistic& {
        return which == 0 ? by_pool.small_pool : which == 1 ? by_pool.large_pool : by_pool.all;
    };
    for (std::size_t which = 0; which < sums.size(); ++which) {
        const Sums& all = sums[which];
        const Sums& base = base_[which];
        const Levels levels = levels_of(all);
        const std::array<StatisticByPool*, 5> where{&result.allocation, &result.allocated_bytes, &result.active,
                                                    &result.active_bytes, &result.requested_bytes};
        const std::array<std::int64_t, 5> added{
            all.added[kBlocks] - base.added[kBlocks], all.added[kBytes] - base.added[kBytes],
            all.added[kBlocks] - base.added[kBlocks], all.added[kBytes] - base.added[kBytes],
            all.added[kRequested] - base.added[kRequested]};
        const std::array<std::int64_t, 5> freed{
            all.freed_blocks - base.freed_blocks, all.freed_bytes - base.freed_bytes,
            all.released[kBlocks] - base.released[kBlocks], all.released[kBytes] - base.released[kBytes],
            all.released[kRequested] - base.released[kRequested]};
        for (std::size_t i = 0; i < levels.size(); ++i)
            pick(*where[i], which) = {levels[i], now.peaks_[which][i], added[i], freed[i]};
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
