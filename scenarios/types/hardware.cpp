#include "scenarios/types/hardware.hpp"

#include <algorithm>
#include <utility>

#include "scenarios/types/check.hpp"

namespace stowage::types {
namespace {

/// The straight line through two points, rounded up.
Nanoseconds interpolate(const CopyPoint& low, const CopyPoint& high, Bytes size) {
    const double share =
        static_cast<double>(size.count - low.size.count) / static_cast<double>(high.size.count - low.size.count);
    const double span = static_cast<double>((high.time - low.time).count());
    return low.time + Nanoseconds{static_cast<std::int64_t>(share * span)};
}

}  // namespace

CopyCurve::CopyCurve(std::vector<CopyPoint> points) : points_(std::move(points)) {
    STOWAGE_CHECK(points_.size() >= 2, "a copy curve needs at least two points");
    for (std::size_t i = 1; i < points_.size(); ++i) {
        STOWAGE_CHECK(points_[i - 1].size < points_[i].size, "copy sizes must rise");
        STOWAGE_CHECK(points_[i - 1].time < points_[i].time, "copy times must rise with size");
    }
}

Nanoseconds CopyCurve::time(Bytes size) const {
    STOWAGE_CHECK(!points_.empty(), "a copy curve needs points");
    if (size <= Bytes{0}) return Nanoseconds{0};
    if (size > points_.back().size) return std::max(points_.back().time, transfer_time(size, peak_rate()));
    const auto above = std::lower_bound(points_.begin(), points_.end(), size,
                                        [](const CopyPoint& point, Bytes bytes) { return point.size < bytes; });
    if (above != points_.begin()) return interpolate(*(above - 1), *above, size);
    const Nanoseconds floor{points_.front().time.count() / 3};
    return std::max(floor, interpolate(points_[0], points_[1], size));
}

BytesPerSecond CopyCurve::peak_rate() const {
    const CopyPoint& last = points_.back();
    return BytesPerSecond{static_cast<double>(last.size.count) / static_cast<double>(last.time.count()) * 1e9};
}

}  // namespace stowage::types
