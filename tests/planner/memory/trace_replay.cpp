#include "tests/planner/memory/trace_replay.hpp"

#include <fstream>
#include <stdexcept>
#include <variant>

namespace stowage::memory {

Json read_traces(const std::string& file) {
    std::ifstream stream(std::string(STOWAGE_SOURCE_DIR) + "/tests/planner/memory/traces/" + file + ".json");
    return Json::parse(stream);
}

AllocatorConfig config_of(const std::string& conf) {
    const auto parsed = parse_allocator_config(conf == "default" ? "" : conf);
    if (const auto* error = std::get_if<AllocatorConfigError>(&parsed)) throw std::invalid_argument(error->message);
    return std::get<ParsedAllocatorConfig>(parsed).config;
}

std::optional<Address> RecordedDeviceMemory::reserve(Bytes size) {
    if (reserved_ + size > capacity_) return std::nullopt;
    reserved_ += size;
    const Address base = next_.value_or(elsewhere_);
    if (!next_) elsewhere_ += static_cast<Address>(size.count);
    next_.reset();
    return base;
}

void RecordedDeviceMemory::release(Address, Bytes size) { reserved_ -= size; }

TraceReplay::TraceReplay(const AllocatorConfig& config, DeviceMemory& memory) : allocator_(config, memory, events_) {}

TraceReplay::~TraceReplay() { allocator_.reset(); }

std::optional<BlockPlace> TraceReplay::run(const Json& operation) {
    const std::string name = operation.at("op");
    if (name == "alloc" || name == "oom") {
        const auto block =
            allocator_.allocate(Bytes{operation.at("bytes").get<std::int64_t>()}, operation.at("stream").get<Stream>());
        if (!block) return std::nullopt;
        blocks_[operation.at("id").get<int>()] = *block;
        return allocator_.place(*block);
    }
    if (name == "busy")
        events_.make_busy(operation.at("stream").get<Stream>());
    else if (name == "sync")
        events_.wait_all();
    else if (name == "empty_cache")
        allocator_.empty_cache();
    else if (operation.contains("id"))
        run_on_block(operation, name);
    else
        run_in_graph(operation, name);
    return std::nullopt;
}

void TraceReplay::run_on_block(const Json& operation, const std::string& name) {
    const int id = operation.at("id").get<int>();
    if (name == "free") {
        allocator_.free(blocks_.at(id));
        blocks_.erase(id);
    } else if (name == "record_stream") {
        allocator_.record_stream(blocks_.at(id), operation.at("stream").get<Stream>());
    } else {
        throw std::invalid_argument("unknown operation " + name);
    }
}

void TraceReplay::run_in_graph(const Json& operation, const std::string& name) {
    if (name == "capture_begin") {
        pool_ = static_cast<PoolId>(operation.at("pool").get<std::uint32_t>());
        capture_stream_ = operation.at("stream").get<Stream>();
        events_.wait_all();
        events_.begin_graph();
        if (!graphs_.enter(allocator_, pool_, capture_stream_)) throw std::runtime_error("no memory for a capture");
    } else if (name == "capture_end") {
        graphs_.leave(allocator_, pool_);
    } else if (name == "join") {
        allocator_.join_capture(pool_, operation.at("stream").get<Stream>());
        events_.wait_for(operation.at("stream").get<Stream>(), capture_stream_);
    } else if (name == "work") {
        events_.add_work(operation.at("stream").get<Stream>());
    } else if (name == "wait") {
        events_.wait_for(operation.at("stream").get<Stream>(), operation.at("on").get<Stream>());
    } else if (name == "graph_destroy") {
        graphs_.destroy(allocator_, static_cast<PoolId>(operation.at("pool").get<std::uint32_t>()));
    } else {
        throw std::invalid_argument("unknown operation " + name);
    }
}

std::vector<std::int64_t> TraceReplay::stats() const {
    const AllocatorStats& now = allocator_.stats();
    return {now.allocated.count, now.active.count, now.reserved.count, now.inactive_split.count, now.segments};
}

std::map<std::string, std::int64_t> TraceReplay::named() const {
    const auto listed = named_statistics(allocator_.statistics());
    return {listed.begin(), listed.end()};
}

std::vector<BlockPlace> TraceReplay::places() const {
    std::vector<BlockPlace> places;
    for (const auto& [id, block] : blocks_) places.push_back(allocator_.place(block));
    return places;
}

}  // namespace stowage::memory
