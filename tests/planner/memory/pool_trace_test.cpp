// Random work that PyTorch 2.11 did on an H200, with captures into several pools that other streams join, graphs that
// are destroyed, memory fractions, garbage collection and requests that fail: every address, every total and at the end
// all of torch.cuda.memory_stats() must be the same. The device's answers are recorded too, so nothing here depends on
// where it puts segments: `at` is the base of the segment in units of 2 MiB from the lowest, the offset and the size.

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/planner/memory/trace_replay.hpp"

namespace stowage::memory {
namespace {

constexpr Address kUnit = Address{2} << 20;
constexpr Address kLowest = Address{1} << 40;

Address recorded_base(const Json& operation) { return kLowest + operation.at("at")[0].get<Address>() * kUnit; }

void check_trace(const AllocatorConfig& config, Bytes capacity, const Json& trace) {
    RecordedDeviceMemory memory(capacity);
    TraceReplay replay(config, memory);
    int line = 0;
    for (const Json& operation : trace) {
        SCOPED_TRACE("operation " + std::to_string(line++) + ": " + operation.dump());
        const bool lands = operation.contains("at");
        memory.announce(lands ? std::optional(recorded_base(operation)) : std::nullopt);
        const std::optional<BlockPlace> place = replay.run(operation);
        ASSERT_EQ(place.has_value(), lands);
        if (lands) {
            ASSERT_EQ(place->offset.count, operation.at("at")[1].get<std::int64_t>());
            ASSERT_EQ(place->segment_size.count, operation.at("at")[2].get<std::int64_t>());
            if (!config.expandable_segments) {
                ASSERT_EQ(place->address, recorded_base(operation) + static_cast<Address>(place->offset.count));
            }
        }
        ASSERT_EQ(replay.stats(), operation.at("stats").get<std::vector<std::int64_t>>());
        ASSERT_NO_THROW(replay.allocator().check_invariants());
        if (operation.contains("named")) {
            const auto named = operation.at("named").get<std::map<std::string, std::int64_t>>();
            EXPECT_EQ(replay.named(), named);
        }
    }
    EXPECT_GE(line, 100);
}

class PoolTrace : public testing::TestWithParam<std::size_t> {};

TEST_P(PoolTrace, LandsWherePyTorchDid) {
    const Json recording = read_traces("pools").at("recordings").at(GetParam());
    const AllocatorConfig config = config_of(recording.at("conf").get<std::string>());
    for (const auto& [name, trace] : recording.at("traces").items()) {
        SCOPED_TRACE(recording.at("conf").get<std::string>() + ", " + name);
        check_trace(config, Bytes{recording.at("capacity").get<std::int64_t>()}, trace);
    }
}

constexpr std::size_t kRecordings = 13;

INSTANTIATE_TEST_SUITE_P(Recorded, PoolTrace, testing::Range(std::size_t{0}, kRecordings));

TEST(PoolTraces, AreAllReplayed) { EXPECT_EQ(read_traces("pools").at("recordings").size(), kRecordings); }

}  // namespace
}  // namespace stowage::memory
