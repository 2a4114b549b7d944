#include "scenarios/recording/measurement.hpp"

#include <algorithm>

namespace stowage::recording {

Nanoseconds median(std::vector<Nanoseconds> times) {
    if (times.empty()) return Nanoseconds{0};
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

}  // namespace stowage::recording
