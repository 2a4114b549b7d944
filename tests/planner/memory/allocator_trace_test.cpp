// Replays what PyTorch 2.11 did on an H200, operation by operation: every address and every total must be the same.

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "planner/memory/allocator_config.hpp"
#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/graph_registry.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kFiles = {"default", "pow2", "maxsplit", "expandable"};

/// What `conf` of a recording says: the text of PYTORCH_CUDA_ALLOC_CONF, or "default" for none.
AllocatorConfig config_of(const std::string& conf) {
    const auto parsed = parse_allocator_config(conf == "default" ? "" : conf);
    if (const auto* error = std::get_if<AllocatorConfigError>(&parsed)) throw std::invalid_argument(error->message);
    return std::get<ParsedAllocatorConfig>(parsed).config;
}

Json read_traces(const std::string& file) {
    std::ifstream stream(std::string(STOWAGE_SOURCE_DIR) + "/tests/planner/memory/traces/" + file + ".json");
    return Json::parse(stream);
}

/// One trace against one allocator.
class Replay {
public:
    explicit Replay(const AllocatorConfig& config)
        : allocator_(config, memory_, events_), expandable_(config.expandable_segments) {}

    void run(const Json& operation) {
        const std::string name = operation.at("op");
        if (name == "alloc") {
            allocate(operation);
        } else if (name == "free") {
            const auto id = operation.at("id").get<int>();
            allocator_.free(blocks_.at(id));
            blocks_.erase(id);
        } else if (name == "record_stream") {
            allocator_.record_stream(blocks_.at(operation.at("id")), operation.at("stream"));
        } else if (name == "busy") {
            events_.make_busy(operation.at("stream"));
        } else if (name == "sync") {
            events_.wait_all();
        } else if (name == "empty_cache") {
            allocator_.empty_cache();
            forget_ranges();
        } else if (name == "capture_begin") {
            pool_ = static_cast<PoolId>(operation.at("pool").get<std::uint32_t>());
            events_.wait_all();
            ASSERT_TRUE(graphs_.enter(allocator_, pool_, operation.at("stream")));
            forget_ranges();
        } else if (name == "capture_end") {
            graphs_.leave(allocator_, pool_);
        } else {
            FAIL() << "unknown operation " << name;
        }
        EXPECT_EQ(stats(), operation.at("stats").get<std::vector<std::int64_t>>());
        ASSERT_NO_THROW(allocator_.check_invariants());
    }

private:
    void allocate(const Json& operation) {
        const auto block =
            allocator_.allocate(Bytes{operation.at("bytes").get<std::int64_t>()}, operation.at("stream"));
        ASSERT_TRUE(block.has_value());
        blocks_[operation.at("id")] = *block;
        const BlockPlace place = allocator_.place(*block);
        const std::int64_t number = expandable_ ? range_number(place) : segment_number(place);
        const std::vector<std::int64_t> at = {number, place.offset.count, place.segment_size.count};
        EXPECT_EQ(at, operation.at("at").get<std::vector<std::int64_t>>());
    }

    // The recording numbers segments in the order in which a recorded allocation first landed in them.
    std::int64_t segment_number(const BlockPlace& place) {
        const auto [segment, is_new] = segments_.try_emplace(place.segment, next_number_);
        if (is_new) ++next_number_;
        return segment->second;
    }

    static Address range_base(const BlockPlace& place) {
        return place.address - static_cast<Address>(place.offset.count);
    }

    // Of an expandable segment the recording numbers each part that is mapped without a hole, by its base. A part that
    // has grown over others ends them.
    std::int64_t range_number(const BlockPlace& place) {
        const Address base = range_base(place);
        ranges_.erase(ranges_.upper_bound(base),
                      ranges_.lower_bound(base + static_cast<Address>(place.segment_size.count)));
        const auto [range, is_new] = ranges_.try_emplace(base, next_number_);
        if (is_new) ++next_number_;
        return range->second;
    }

    // In an emptied cache a part without a live block is unmapped, whole: parts are whole granules.
    void forget_ranges() {
        std::set<Address> kept;
        for (const auto& [id, block] : blocks_) kept.insert(range_base(allocator_.place(block)));
        std::erase_if(ranges_, [&](const auto& range) { return !kept.contains(range.first); });
    }

    [[nodiscard]] std::vector<std::int64_t> stats() const {
        const AllocatorStats& now = allocator_.stats();
        return {now.allocated.count, now.active.count, now.reserved.count, now.inactive_split.count, now.segments};
    }

    VirtualDeviceMemory memory_;
    TestEvents events_;
    CachingAllocator allocator_;
    std::map<int, BlockHandle> blocks_;
    bool expandable_;
    std::map<Address, std::int64_t> ranges_;  ///< base to number
    std::map<std::uint64_t, std::int64_t> segments_;
    std::int64_t next_number_ = 0;
    GraphRegistry graphs_;
    PoolId pool_{};
};

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
    Replay replay(config_of(file.at("conf")));
    int line = 0;
    for (const Json& operation : file.at("traces").at(GetParam().trace)) {
        SCOPED_TRACE("operation " + std::to_string(line++) + ": " + operation.dump());
        replay.run(operation);
        if (HasFailure()) return;
    }
    EXPECT_GE(line, 10);
}

INSTANTIATE_TEST_SUITE_P(Recorded, AllocatorTrace, testing::ValuesIn(trace_cases()), case_name);

TEST(AllocatorTraces, AreAllReplayed) {
    // 14 in the default configuration, 12 with expandable segments, 10 under a split limit, 9 rounded to divisions.
    EXPECT_EQ(trace_cases().size(), 14U + 12U + 10U + 9U);
}

}  // namespace
}  // namespace stowage::memory
