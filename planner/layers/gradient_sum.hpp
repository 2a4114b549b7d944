#pragma once

#include <optional>
#include <string>

#include "planner/layers/writer.hpp"

namespace stowage::layers {

/// Gradients of one tensor that arrive one after the other. The first is kept; each later one is added into it and
/// dropped, as autograd does with a buffer that nobody else holds.
class GradientSum {
public:
    /// `gradient`: of the shape of a hidden state, held by the caller until now.
    void add(Writer& writer, const std::string& name, Slot gradient) {
        if (sum_) {
            writer.memory_kernel(name + ".join_gradients", 3 * 2 * writer.dim.hidden_elements());
            writer.script.drop(gradient);
        } else {
            sum_ = gradient;
        }
    }
    /// The sum; something must have been added.
    [[nodiscard]] Slot take() const { return *sum_; }

private:
    std::optional<Slot> sum_;
};

}  // namespace stowage::layers
