#pragma once

// What comes before what on the streams of a rank, spelled out: a node for every operation of a stream, each with the
// set of all nodes before it. Quadratic, and knows nothing of clocks.

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "planner/program/stream.hpp"

namespace stowage::tests {

class HappensBefore {
public:
    using Node = std::size_t;

    /// The next node of a stream, behind its last one and the given ones.
    Node add(program::Stream stream, const std::vector<Node>& behind = {}) {
        std::vector<bool> before(before_.size() + 1, false);
        const auto take = [&](Node node) {
            for (std::size_t i = 0; i < before_[node].size(); ++i)
                if (before_[node][i]) before[i] = true;
        };
        if (const auto& last = last_[program::index(stream)]) take(*last);
        for (const Node node : behind) take(node);
        before.back() = true;
        before_.push_back(std::move(before));
        last_[program::index(stream)] = before_.size() - 1;
        return before_.size() - 1;
    }
    /// The same for what takes time: it may use memory.
    Node work(program::Stream stream) {
        last_work_[program::index(stream)] = add(stream);
        return before_.size() - 1;
    }
    void all_behind(const std::vector<Node>& nodes) {
        for (int i = 0; i < program::kStreamCount; ++i) add(static_cast<program::Stream>(i), nodes);
    }
    [[nodiscard]] std::vector<Node> last(program::Stream stream) const {
        const auto& node = last_[program::index(stream)];
        return node ? std::vector<Node>{*node} : std::vector<Node>{};
    }
    [[nodiscard]] std::optional<Node> last_work(program::Stream stream) const {
        return last_work_[program::index(stream)];
    }
    [[nodiscard]] std::vector<Node> all_last() const {
        std::vector<Node> nodes;
        for (const auto& node : last_)
            if (node) nodes.push_back(*node);
        return nodes;
    }
    [[nodiscard]] bool comes_before(Node first, Node second) const {
        return first < before_[second].size() && before_[second][first];
    }

private:
    std::vector<std::vector<bool>> before_;
    std::array<std::optional<Node>, program::kStreamCount> last_;
    std::array<std::optional<Node>, program::kStreamCount> last_work_;
};

}  // namespace stowage::tests
