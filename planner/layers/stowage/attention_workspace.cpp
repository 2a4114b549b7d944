#include "planner/layers/stowage/attention_workspace.hpp"

namespace stowage::layers {
namespace {

/// What the MLP has given back by then.
constexpr std::int64_t kEnough = 512LL << 20;

/// Multi-latent attention.
bool has_narrow_values(const Dimensions& dim) {
    return dim.value_head_size != 0 && dim.value_head_size != dim.head_size;
}

/// No measurement yet: at most the gradient of the scores with both sides rounded up to the larger tiles, and an fp32
/// copy of the query's gradient beside the sums of rows.
std::int64_t most_of_narrow_values(const Dimensions& dim, std::int64_t places) {
    return 2 * places * places + 4 * places + 4 * places * dim.head_size;
}

/// Of so many heads over all sequences of the batch: the gradient of the scores in bf16, places rounded up to whole
/// tiles; fp32 sums of their rows; with shared keys and values, the gradients of both for every head.
std::int64_t bytes_for(const Dimensions& dim, std::int64_t heads) {
    constexpr std::int64_t kTile = 64;
    constexpr std::int64_t kCounters = 256;
    const auto rounded = [&](std::int64_t tile) { return (dim.sequence + tile - 1) / tile * tile; };
    const std::int64_t places = rounded(kTile);
    const std::int64_t of_keys = dim.heads == dim.groups ? 0 : 2 * 2 * dim.sequence * dim.head_size;
    const std::int64_t plain = 2 * places * places + 4 * places + of_keys;
    return heads * (has_narrow_values(dim) ? most_of_narrow_values(dim, rounded(2 * kTile)) : plain) + kCounters;
}

/// Of the batch's heads, or of one part of a sequence's.
std::int64_t bytes_in(const Dimensions& dim, std::int64_t parts) {
    if (parts == 1) return bytes_for(dim, dim.micro_batch * dim.heads);
    return bytes_for(dim, dim.groups / parts * (dim.heads / dim.groups));
}

}  // namespace

std::int64_t attention_backward_parts(const Dimensions& dim) {
    if (bytes_in(dim, 1) <= kEnough) return 1;
    for (std::int64_t parts = 2; parts <= dim.groups; ++parts)
        if (dim.groups % parts == 0 && bytes_in(dim, parts) <= kEnough + (kEnough >> 6)) return parts;
    return dim.groups;
}

std::int64_t attention_backward_workspace(const Dimensions& dim) {
    return bytes_in(dim, attention_backward_parts(dim));
}

}  // namespace stowage::layers
