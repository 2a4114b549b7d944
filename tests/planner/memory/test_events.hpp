#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/memory/device_memory.hpp"

namespace stowage::memory {

/// Streams that are idle until made busy: an event recorded on an idle stream is complete at once, one recorded on a
/// busy stream when the device is waited for.
class TestEvents : public StreamEvents {
public:
    EventHandle record(Stream stream) override {
        complete_.push_back(!busy_.at(stream));
        return static_cast<EventHandle>(complete_.size() - 1);
    }
    bool completed(EventHandle event) override { return complete_.at(static_cast<std::size_t>(event)); }
    void wait_all() override {
        ++waits_;
        busy_.fill(false);
        complete_.assign(complete_.size(), true);
    }

    void make_busy(Stream stream) { busy_.at(stream) = true; }
    void complete(EventHandle event) { complete_.at(static_cast<std::size_t>(event)) = true; }
    [[nodiscard]] int waits() const { return waits_; }

private:
    std::array<bool, kMaxStreams> busy_{};
    std::vector<bool> complete_;
    int waits_ = 0;
};

}  // namespace stowage::memory
