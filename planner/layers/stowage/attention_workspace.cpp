#include "planner/layers/stowage/attention_workspace.hpp"

#include <algorithm>

namespace stowage::layers {

/// The gradient of the scores in bf16, sequences rounded up to whole tiles, for as many heads as fit into what the MLP
/// has given back by then; and per row of scores a few numbers.
std::int64_t attention_backward_workspace(const Dimensions& dim) {
    constexpr std::int64_t kTile = 64;
    constexpr std::int64_t kEnough = 512LL << 20;
    constexpr std::int64_t kBytesOfRow = 32;
    const std::int64_t sequence = (dim.sequence + kTile - 1) / kTile * kTile;
    const std::int64_t head = 2 * sequence * sequence;
    const std::int64_t group = head * (dim.heads / dim.groups);
    const std::int64_t scores = std::min(dim.micro_batch * dim.heads * head, std::max(kEnough, group));
    return scores + kBytesOfRow * dim.micro_batch * dim.heads * sequence;
}

}  // namespace stowage::layers
