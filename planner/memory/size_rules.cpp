#include "planner/memory/size_rules.hpp"

#include <bit>

namespace stowage::memory {
namespace {

/// The next of `divisions` even steps between the powers of two around `size`.
std::int64_t next_power2_division(std::int64_t size, std::int64_t divisions) {
    const auto bits = static_cast<std::uint64_t>(size);
    if (std::has_single_bit(bits)) return size;
    const auto step = static_cast<std::int64_t>(std::bit_floor(bits)) / divisions;
    return (size + step - 1) / step * step;
}

}  // namespace

Bytes block_size(const AllocatorConfig& config, Bytes size) {
    if (size < kMinBlock) return kMinBlock;
    const std::int64_t divisions = config.roundup_power2_divisions.of(size);
    if (divisions > 1 && size.count > kMinBlock.count * divisions)
        return Bytes{next_power2_division(size.count, divisions)};
    return Bytes{(size.count + kMinBlock.count - 1) / kMinBlock.count * kMinBlock.count};
}

}  // namespace stowage::memory
