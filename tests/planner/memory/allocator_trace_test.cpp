// Replays what PyTorch 2.11 did on an H200, operation by operation: every place and every total must be the same. The
// traces of a file were recorded one after the other in one process, each from an empty allocator; so are they here,
// since the addresses that the device gives depend on what the process had before.

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/planner/memory/trace_replay.hpp"

namespace stowage::memory {
namespace {

const std::vector<std::string> kFiles = {"default", "pow2", "maxsplit", "expandable"};

/// The recording numbers segments in the order in which a recorded allocation first landed in them. Of an expandable
/// segment it numbers each part that is mapped without a hole, by its base: a part that has grown over others ends
/// them, and one that is unmapped is forgotten.
class SegmentNumbers {
public:
    explicit SegmentNumbers(bool expandable) : expandable_(expandable) {}

    std::int64_t number(const BlockPlace& place) {
        const Address base = expandable_ ? base_of(place) : place.segment;
        if (expandable_)
            numbers_.erase(numbers_.upper_bound(base),
                           numbers_.lower_bound(base + static_cast<Address>(place.segment_size.count)));
        const auto [segment, is_new] = numbers_.try_emplace(base, next_);
        if (is_new) ++next_;
        return segment->second;
    }

    /// In an emptied cache a part without a live block is unmapped, whole: parts are whole granules.
    void keep(const std::vector<BlockPlace>& live) {
        if (!expandable_) return;
        std::set<Address> kept;
        for (const BlockPlace& place : live) kept.insert(base_of(place));
        std::erase_if(numbers_, [&](const auto& range) { return !kept.contains(range.first); });
    }

private:
    static Address base_of(const BlockPlace& place) { return place.address - static_cast<Address>(place.offset.count); }

    bool expandable_;
    std::map<Address, std::int64_t> numbers_;  ///< by number of the allocator, or by base
    std::int64_t next_ = 0;
};

void check_trace(const AllocatorConfig& config, DeviceMemory& memory, const Json& trace) {
    TraceReplay replay(config, memory);
    SegmentNumbers segments(config.expandable_segments);
    int line = 0;
    for (const Json& operation : trace) {
        SCOPED_TRACE("operation " + std::to_string(line++) + ": " + operation.dump());
        const std::optional<BlockPlace> place = replay.run(operation);
        ASSERT_EQ(place.has_value(), operation.contains("at"));
        if (place) {
            const std::vector<std::int64_t> at = {segments.number(*place), place->offset.count,
                                                  place->segment_size.count};
            ASSERT_EQ(at, operation.at("at").get<std::vector<std::int64_t>>());
        }
        if (operation.at("op") == "empty_cache" || operation.at("op") == "capture_begin")
            segments.keep(replay.places());
        ASSERT_EQ(replay.stats(), operation.at("stats").get<std::vector<std::int64_t>>());
        ASSERT_NO_THROW(replay.allocator().check_invariants());
    }
    EXPECT_GE(line, 10);
}

struct TraceCase {
    std::string file;
    std::string trace;
};

void PrintTo(const TraceCase& one, std::ostream* out) { *out << one.file << " " << one.trace; }

std::vector<TraceCase> trace_cases() {
    std::vector<TraceCase> cases;
    for (const std::string& file : kFiles) {
        const Json content = read_traces(file);
        for (const auto& [trace, operations] : content.at("traces").items()) cases.push_back({file, trace});
    }
    return cases;
}

std::string case_name(const testing::TestParamInfo<TraceCase>& info) {
    std::string name = info.param.file + "_" + info.param.trace;
    for (char& letter : name)
        if (letter == ' ') letter = '_';
    return name;
}

class AllocatorTrace : public testing::TestWithParam<TraceCase> {};

TEST_P(AllocatorTrace, LandsWherePyTorchDid) {
    const Json file = read_traces(GetParam().file);
    const AllocatorConfig config = config_of(file.at("conf").get<std::string>());
    VirtualDeviceMemory memory;
    for (const auto& [name, trace] : file.at("traces").items()) {
        if (name == GetParam().trace) {
            check_trace(config, memory, trace);
            return;
        }
        TraceReplay before(config, memory);
        for (const Json& operation : trace) before.run(operation);
    }
    FAIL() << "no such trace";
}

INSTANTIATE_TEST_SUITE_P(Recorded, AllocatorTrace, testing::ValuesIn(trace_cases()), case_name);

TEST(AllocatorTraces, AreAllReplayed) {
    // 14 in the default configuration, 12 with expandable segments, 10 under a split limit, 9 rounded to divisions.
    EXPECT_EQ(trace_cases().size(), 14U + 12U + 10U + 9U);
}

}  // namespace
}  // namespace stowage::memory
