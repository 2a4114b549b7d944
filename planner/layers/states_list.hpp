#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/layers/layer_script.hpp"

namespace stowage::layers {

/// State buffers in the order in which they are allocated; empty ones are left out.
class StateList {
public:
    void add(std::string name, std::int64_t bytes, StateBuffer::What what,
             StateBuffer::When when = StateBuffer::When::setup) {
        if (bytes > 0) list_.push_back({std::move(name), Bytes{bytes}, what, when});
    }
    std::vector<StateBuffer> take() { return std::move(list_); }

private:
    std::vector<StateBuffer> list_;
};

}  // namespace stowage::layers
