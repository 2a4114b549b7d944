#include "planner/simulator/capture_order.hpp"

#include <algorithm>

namespace stowage::simulator {
namespace {

constexpr int kStreamBits = 8;

}  // namespace

using program::index;
using program::Stream;

void CaptureOrder::begin() {
    behind_ = {};
    events_.clear();
}

void CaptureOrder::work(Stream stream) { ++behind_[index(stream)][index(stream)]; }

void CaptureOrder::join(Stream stream, const Reach& other) {
    Reach& reach = behind_[index(stream)];
    for (std::size_t i = 0; i < reach.size(); ++i) reach[i] = std::max(reach[i], other[i]);
}

void CaptureOrder::wait(Stream stream, Stream other) { join(stream, Reach(behind_[index(other)])); }

void CaptureOrder::record(std::uint32_t event, Stream stream) { events_[event] = behind_[index(stream)]; }

void CaptureOrder::wait_event(Stream stream, std::uint32_t event) {
    if (const auto found = events_.find(event); found != events_.end()) join(stream, found->second);
}

std::optional<memory::CaptureMark> CaptureOrder::mark(Stream stream) {
    const Reach& reach = behind_[index(stream)];
    if (std::all_of(reach.begin(), reach.end(), [](std::uint32_t place) { return place == 0; })) return std::nullopt;
    work(stream);
    return static_cast<memory::CaptureMark>(std::uint64_t{reach[index(stream)]} << kStreamBits | index(stream));
}

bool CaptureOrder::is_behind(Stream stream, memory::CaptureMark mark) const {
    const auto number = static_cast<std::uint64_t>(mark);
    return behind_[index(stream)][number & ((1U << kStreamBits) - 1)] >= number >> kStreamBits;
}

}  // namespace stowage::simulator
