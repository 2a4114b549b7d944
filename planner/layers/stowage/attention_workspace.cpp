#include "planner/layers/stowage/attention_workspace.hpp"

namespace stowage::layers {

std::int64_t attention_backward_workspace(const Dimensions& dim) {
    constexpr std::int64_t kFp32 = 4;
    constexpr std::int64_t kBf16 = 2;
    const std::int64_t rows = dim.tokens * dim.heads;
    const std::int64_t elements = rows * dim.head_size;
    const std::int64_t per_head = dim.heads == dim.groups ? 0 : 2 * kBf16 * elements;
    return kFp32 * elements + kFp32 * rows + per_head;
}

}  // namespace stowage::layers
