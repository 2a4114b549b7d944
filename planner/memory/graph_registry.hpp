#pragma once

// What torch.cuda.graph does to the allocator besides the capture itself.
//
// Entering it waits for the device and empties the cache, so that blocks held for other streams come free and nothing
// cached stands in the pool's way. The first graph of a process, or the first after all were destroyed, makes two
// tensors for the seed and the offset of the random generator: on the stream of the capture but before it begins, so
// from the default pool. They live as long as any graph does.
//
// Source: PyTorch 2.11, torch/cuda/graphs.py (graph.__enter__), aten/src/ATen/cuda/CUDAGraph.cpp (capture_begin,
// reset), CUDAGeneratorImpl.cpp (register_graph, unregister_graph); the two tensors as recorded. Tested by:
// tests/planner/memory/graph_registry_test.cpp and the recorded traces.

#include <array>
#include <cstdint>
#include <optional>

#include "planner/memory/caching_allocator.hpp"

namespace stowage::memory {

class GraphRegistry {
public:
    static constexpr Bytes kGeneratorTensor{8};  ///< one 64-bit integer

    /// Enters torch.cuda.graph on `stream`, up to the begin of the capture. False: there was no memory for the two
    /// tensors, and no capture began. The caller has waited for the device.
    bool enter(CachingAllocator& allocator, PoolId pool, Stream stream);
    /// Leaves it: the graph exists.
    void leave(CachingAllocator& allocator, PoolId pool);
    /// A graph captured with the pool is destroyed.
    void destroy(CachingAllocator& allocator, PoolId pool);

    [[nodiscard]] std::int64_t graphs() const { return graphs_; }

private:
    std::int64_t graphs_ = 0;
    std::array<std::optional<BlockHandle>, 2> generator_;
};

}  // namespace stowage::memory
