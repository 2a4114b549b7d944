// Random work under memory pressure, eager and captured, in every configuration: no two live blocks overlap, nothing
// leaks, what is counted adds up, and the same work lands in the same places.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "planner/memory/allocator_config.hpp"
#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/graph_registry.hpp"
#include "tests/planner/memory/test_events.hpp"
#include "tests/support/seed.hpp"

namespace stowage::memory {
namespace {

using namespace types::literals;

constexpr Stream kCapture = 3;  ///< streams 0 to 2 work eagerly, and 1 and 2 join captures
constexpr Bytes kLimit = 600_MiB;

class RandomWork {
public:
    RandomWork(std::uint64_t seed, const AllocatorConfig& config)
        : random_(seed), config_(config), memory_(kLimit), allocator_(config, memory_, events_) {}

    void run(int steps) {
        for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
            SCOPED_TRACE("step " + std::to_string(step));
            act(below(100));
            check();
        }
        finish();
    }

    [[nodiscard]] const std::vector<Address>& addresses() const { return addresses_; }
    [[nodiscard]] const AllocatorStats& stats() const { return allocator_.stats(); }
    [[nodiscard]] std::int64_t captures() const { return captures_; }

private:
    std::uint64_t below(std::uint64_t end) { return random_() % end; }

    void act(std::uint64_t action) {
        if (action < 44 || live_.empty())
            allocate();
        else if (action < 84)
            free(below(live_.size()));
        else if (allocator_.capturing())
            act_in_capture(action);
        else if (action < 88)
            events_.make_busy(static_cast<Stream>(below(3)));
        else if (action < 90)
            events_.wait_all();
        else if (action < 91)
            allocator_.empty_cache();
        else if (action < 97)
            capture();
        else
            destroy_a_graph();
    }

    void act_in_capture(std::uint64_t action) {
        if (action < 88 && joined_.size() < 3) {
            const auto stream = static_cast<Stream>(joined_.size());
            allocator_.join_capture(pool_, stream);
            events_.wait_for(stream, kCapture);
            joined_.push_back(stream);
        } else if (action < 91) {
            events_.add_work(some(joined_));
        } else if (action < 94) {
            events_.wait_for(some(joined_), some(joined_));
        } else if (action < 95) {
            allocator_.empty_cache();
        } else {
            graphs_.leave(allocator_, pool_);
            captured_.push_back(pool_);
            ++captures_;
        }
    }

    Stream some(const std::vector<Stream>& streams) { return streams[below(streams.size())]; }

    Stream working_stream() { return allocator_.capturing() ? some(joined_) : static_cast<Stream>(below(3)); }

    Bytes some_size() {
        static constexpr std::int64_t kScales[] = {512, 1 << 16, 1 << 20, 4 << 20, 70 << 20};
        const std::int64_t scale = kScales[below(std::size(kScales))];
        return Bytes{1 + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(scale)))};
    }

    void allocate() {
        const Bytes size = some_size();
        const Stream stream = working_stream();
        const bool full = !allocator_.has_block(size, stream) && !memory_.has_room(allocator_.growth(size, stream));
        const std::int64_t retries = stats().retries;
        const auto block = allocator_.allocate(size, stream);
        // Under a split limit oversize blocks may be given back instead, below the device's limit there is another one.
        if (!config_.limits_splitting() && !config_.limits_memory()) {
            EXPECT_EQ(stats().retries - retries, full && !allocator_.capturing() ? 1 : 0);
        }
        if (block) take(*block, size);
    }

    void take(BlockHandle block, Bytes size) {
        const BlockPlace place = allocator_.place(block);
        const Address end = place.address + static_cast<Address>(place.size.count);
        EXPECT_EQ(place.address % 512, 0U);
        EXPECT_GE(place.size, size);
        EXPECT_EQ(place.pool.has_value(), allocator_.capturing());
        EXPECT_EQ(place.pool.value_or(pool_), pool_);
        const auto above = in_use_.lower_bound(place.address);
        EXPECT_TRUE(above == in_use_.end() || end <= above->first) << "overlaps the block above";
        EXPECT_TRUE(above == in_use_.begin() || std::prev(above)->second <= place.address)
            << "overlaps the block below";
        in_use_[place.address] = end;
        live_.push_back(block);
        addresses_.push_back(place.address);
    }

    void free(std::size_t which) {
        if (below(4) == 0) allocator_.record_stream(live_[which], static_cast<Stream>(below(4)));
        in_use_.erase(allocator_.place(live_[which]).address);
        allocator_.free(live_[which]);
        live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
    }

    void capture() {
        pool_ = static_cast<PoolId>(below(3));
        // A pool whose graphs are gone while something in it lives is not captured into.
        if (allocator_.graphs_of(pool_) == 0) pool_ = static_cast<PoolId>(100 + captures_);
        events_.wait_all();
        events_.begin_graph();
        if (graphs_.enter(allocator_, pool_, kCapture)) joined_ = {kCapture};
    }

    void destroy_a_graph() {
        if (captured_.empty()) return;
        const std::size_t which = below(captured_.size());
        graphs_.destroy(allocator_, captured_[which]);
        captured_.erase(captured_.begin() + static_cast<std::ptrdiff_t>(which));
    }

    void check() {
        EXPECT_NO_THROW(allocator_.check_invariants());
        EXPECT_LE(stats().allocated, stats().active);
        EXPECT_LE(stats().active, stats().reserved);
        EXPECT_LE(stats().inactive_split, stats().reserved - stats().active);
        EXPECT_EQ(stats().reserved, memory_.reserved());
        const FragmentationReport report = allocator_.fragmentation(1_MiB, 0);
        EXPECT_EQ(report.allocated + report.held + report.free, stats().reserved);
        Bytes parts;
        for (const CacheReport& cache : report.caches) parts += cache.allocated + cache.held + cache.free;
        EXPECT_EQ(parts, stats().reserved);
    }

    void finish() {
        if (allocator_.capturing()) {
            graphs_.leave(allocator_, pool_);
            captured_.push_back(pool_);
        }
        while (!captured_.empty()) destroy_a_graph();
        while (!live_.empty()) free(live_.size() - 1);
        allocator_.empty_cache();
        EXPECT_EQ(stats().reserved, 0_B);
        EXPECT_EQ(stats().active, 0_B);
        EXPECT_EQ(memory_.reserved(), 0_B);
        const MemoryStatistics counted = allocator_.statistics();
        EXPECT_EQ(counted.allocation.all.allocated, counted.allocation.all.freed);
        EXPECT_EQ(counted.requested_bytes.all.allocated, counted.requested_bytes.all.freed);
        EXPECT_EQ(counted.reserved_bytes.all.allocated, counted.reserved_bytes.all.freed);
        EXPECT_EQ(counted.inactive_split_bytes.all.allocated, counted.inactive_split_bytes.all.freed);
        EXPECT_NO_THROW(allocator_.check_invariants());
    }

    std::mt19937_64 random_;
    AllocatorConfig config_;
    VirtualDeviceMemory memory_;
    TestEvents events_;
    CachingAllocator allocator_;
    GraphRegistry graphs_;
    std::vector<BlockHandle> live_;
    std::map<Address, Address> in_use_;  ///< start to end of live blocks
    std::vector<Address> addresses_;     ///< every one handed out
    std::vector<Stream> joined_;         ///< of the capture under way
    std::vector<PoolId> captured_;       ///< of each graph that lives
    PoolId pool_{};
    std::int64_t captures_ = 0;
};

class CachingAllocatorProperty : public testing::TestWithParam<const char*> {};

TEST_P(CachingAllocatorProperty, KeepsItsBooksAndRepeatsItself) {
    const std::uint64_t seed = tests::property_seed(20260802);
    const auto parsed = parse_allocator_config(GetParam());
    const AllocatorConfig config = std::get<ParsedAllocatorConfig>(parsed).config;
    RandomWork first(seed, config);
    first.run(4000);
    EXPECT_GT(first.captures(), 10) << "hardly anything was captured: the test is too easy";
    EXPECT_GT(first.stats().retries, 0) << "the limit never pressed: the test is too easy";
    RandomWork second(seed, config);
    second.run(4000);
    EXPECT_EQ(first.addresses(), second.addresses());
}

INSTANTIATE_TEST_SUITE_P(
    EveryConfiguration, CachingAllocatorProperty,
    testing::Values("", "roundup_power2_divisions:8", "roundup_power2_divisions:[1:4,16:8,>:2]",
                    "expandable_segments:True", "max_split_size_mb:32", "large_segment_size_mb:30",
                    "expandable_segments:True,max_split_size_mb:40", "per_process_memory_fraction:0.7",
                    "per_process_memory_fraction:0.8,garbage_collection_threshold:0.5",
                    "expandable_segments:True,per_process_memory_fraction:0.8,garbage_collection_threshold:0.5",
                    "graph_capture_record_stream_reuse:True",
                    "expandable_segments:True,graph_capture_record_stream_reuse:True"));

}  // namespace
}  // namespace stowage::memory
