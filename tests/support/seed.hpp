#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>

namespace stowage::tests {

/// The seed of a property test: STOWAGE_SEED if set, else `fixed`. Printed, so that a failure can be repeated.
inline std::uint64_t property_seed(std::uint64_t fixed) {
    const char* text = std::getenv("STOWAGE_SEED");
    const std::uint64_t seed = text != nullptr ? std::strtoull(text, nullptr, 10) : fixed;
    std::cout << "STOWAGE_SEED=" << seed << '\n';
    return seed;
}

}  // namespace stowage::tests
