#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/memory/allocator_config.hpp"
#include "planner/memory/caching_allocator.hpp"
#include "planner/memory/graph_registry.hpp"
#include "tests/planner/memory/test_events.hpp"

namespace stowage::memory {

using Json = nlohmann::ordered_json;  ///< traces are replayed in the order in which they were recorded

Json read_traces(const std::string& file);

/// What `conf` of a recording says: the text of PYTORCH_CUDA_ALLOC_CONF, or "default" for none.
AllocatorConfig config_of(const std::string& conf);

/// Gives each segment the address that is announced before; one that is not recorded lies far above. Expandable
/// segments take addresses of their own.
class RecordedDeviceMemory final : public DeviceMemory {
public:
    explicit RecordedDeviceMemory(Bytes capacity) : capacity_(capacity), ranges_(capacity) {}
    void announce(std::optional<Address> next) { next_ = next; }

    std::optional<Address> reserve(Bytes size) override;
    void release(Address base, Bytes size) override;
    [[nodiscard]] Bytes capacity() const override { return capacity_; }
    Address reserve_range(Bytes size) override { return ranges_.reserve_range(size); }
    void release_range(Address base, Bytes size) override { ranges_.release_range(base, size); }
    bool map(Address base, Bytes size) override { return ranges_.map(base, size); }
    void unmap(Address base, Bytes size) override { ranges_.unmap(base, size); }

private:
    Bytes capacity_;
    Bytes reserved_;
    VirtualDeviceMemory ranges_;
    std::optional<Address> next_;
    Address elsewhere_ = Address{1} << 60;
};

/// One trace against one allocator: every operation of it, and how the allocator answers. The allocator's memory is
/// given back at the end, as that of the process was between two traces.
class TraceReplay {
public:
    TraceReplay(const AllocatorConfig& config, DeviceMemory& memory);
    ~TraceReplay();
    TraceReplay(const TraceReplay&) = delete;
    TraceReplay& operator=(const TraceReplay&) = delete;

    /// Carries the operation out; the place of what it allocated, nothing if it allocates nothing or in vain.
    /// Throws: std::invalid_argument if it does not know the operation.
    std::optional<BlockPlace> run(const Json& operation);
    /// The five numbers that a recording has for each operation.
    [[nodiscard]] std::vector<std::int64_t> stats() const;
    /// torch.cuda.memory_stats().
    [[nodiscard]] std::map<std::string, std::int64_t> named() const;
    /// Of each live block its place.
    [[nodiscard]] std::vector<BlockPlace> places() const;
    [[nodiscard]] const CachingAllocator& allocator() const { return allocator_; }

private:
    void run_on_block(const Json& operation, const std::string& name);
    void run_in_graph(const Json& operation, const std::string& name);

    TestEvents events_;
    CachingAllocator allocator_;
    GraphRegistry graphs_;
    std::map<int, BlockHandle> blocks_;
    PoolId pool_{};
    Stream capture_stream_ = 0;
};

}  // namespace stowage::memory
