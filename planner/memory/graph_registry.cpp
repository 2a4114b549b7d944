#include "planner/memory/graph_registry.hpp"

#include "scenarios/types/check.hpp"

namespace stowage::memory {

bool GraphRegistry::enter(CachingAllocator& allocator, PoolId pool, Stream stream) {
    allocator.empty_cache();
    for (std::optional<BlockHandle>& tensor : generator_) {
        if (!tensor) tensor = allocator.allocate(kGeneratorTensor, stream);
        if (!tensor) return false;
    }
    ++graphs_;
    allocator.begin_capture(pool, stream);
    return true;
}

void GraphRegistry::leave(CachingAllocator& allocator, PoolId pool) { allocator.end_capture(pool); }

void GraphRegistry::destroy(CachingAllocator& allocator, PoolId pool) {
    STOWAGE_CHECK(graphs_ > 0, "a graph destroyed exists");
    allocator.release_pool(pool);
    if (--graphs_ > 0) return;
    for (std::optional<BlockHandle>& tensor : generator_) {
        allocator.free(*tensor);
        tensor.reset();
    }
}

}  // namespace stowage::memory
