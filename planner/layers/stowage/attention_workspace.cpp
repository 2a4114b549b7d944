#include "planner/layers/stowage/attention_workspace.hpp"

namespace stowage::layers {
namespace {

/// What the MLP has given back by then.
constexpr std::int64_t kEnough = 512LL << 20;

/// Of so many heads over all sequences of the batch: the gradient of the scores in bf16, places rounded up to whole
/// tiles; fp32 sums of their rows; with shared keys and values, the gradients of both for every head.
std::int64_t bytes_for(const Dimensions& dim, std::int64_t heads) {
    constexpr std::int64_t kTile = 64;
    constexpr std::int64_t kCounters = 256;
    const std::int64_t places = (dim.sequence + kTile - 1) / kTile * kTile;
    const std::int64_t of_keys = dim.heads == dim.groups ? 0 : 2 * 2 * dim.sequence * dim.head_size;
    return heads * (2 * places * places + 4 * places + of_keys) + kCounters;
}

}  // namespace

std::int64_t attention_backward_workspace(const Dimensions& dim) {
    if (const std::int64_t whole = bytes_for(dim, dim.micro_batch * dim.heads); whole <= kEnough) return whole;
    const std::int64_t heads_of_group = dim.heads / dim.groups;
    for (std::int64_t parts = 2; parts <= dim.groups; ++parts) {
        const std::int64_t needed = bytes_for(dim, dim.groups / parts * heads_of_group);
        if (dim.groups % parts == 0 && needed <= kEnough + (kEnough >> 6)) return needed;
    }
    return bytes_for(dim, heads_of_group);
}

}  // namespace stowage::layers
