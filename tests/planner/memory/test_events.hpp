#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "planner/memory/device_memory.hpp"

namespace stowage::memory {

/// Streams that are idle until made busy: an event recorded on an idle stream is complete at once, one recorded on a
/// busy stream when the device is waited for. What a graph being captured orders is kept by vector clocks: each stream
/// knows how much of every stream it comes behind.
class TestEvents final : public StreamEvents {
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
    std::optional<CaptureMark> mark(Stream stream) override {
        if (behind_[stream].empty()) return std::nullopt;
        marks_.push_back(behind_[stream]);
        return static_cast<CaptureMark>(marks_.size() - 1);
    }
    bool is_behind(Stream stream, CaptureMark mark) override {
        const Clock& wanted = marks_.at(static_cast<std::size_t>(mark));
        return std::all_of(wanted.begin(), wanted.end(),
                           [&](const auto& other) { return behind_[stream][other.first] >= other.second; });
    }

    void make_busy(Stream stream) { busy_.at(stream) = true; }
    void complete(EventHandle event) { complete_.at(static_cast<std::size_t>(event)) = true; }
    [[nodiscard]] int waits() const { return waits_; }

    void begin_graph() {
        behind_.clear();
        marks_.clear();
    }
    /// The stream is given one more operation of the graph.
    void add_work(Stream stream) { ++behind_[stream][stream]; }
    /// What the stream is given from now on comes behind all that `other` has been given so far.
    void wait_for(Stream stream, Stream other) {
        for (const auto& [third, count] : behind_[other])
            behind_[stream][third] = std::max(behind_[stream][third], count);
    }

private:
    using Clock = std::map<Stream, int>;

    std::array<bool, kMaxStreams> busy_{};
    std::vector<bool> complete_;
    std::map<Stream, Clock> behind_;
    std::vector<Clock> marks_;
    int waits_ = 0;
};

}  // namespace stowage::memory
