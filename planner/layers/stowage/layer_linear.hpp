#pragma once

// A linear of a dense layer's halves in the scenario's precision: as bf16 products, split over tensor-parallel ranks
// (tensor_shards), or in FP8 (fp8_linear), on one such rank.
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp, stowage_tensor_test.cpp, stowage_fp8_test.cpp.

#include <functional>
#include <optional>

#include "planner/layers/stowage/fp8_linear.hpp"
#include "planner/layers/stowage/tensor_shards.hpp"

namespace stowage::layers {

class LayerLinear {
public:
    /// Declares tensors. Keeps a reference to the writer. `has_input_again`: the layer's backward has the bf16 input,
    /// saved or made again, without this linear asking for it.
    LayerLinear(StowageWriter& writer, const LinearWeights& weights, bool has_input_again);

    /// Whether the forward saves an FP8 copy of the input, so that nobody else need save the input for it.
    [[nodiscard]] bool keeps_copy() const { return keeps_copy_; }

    /// y = input W^T (+ bias) for this rank's columns, of a hidden-state tensor; a copy is saved in `group`.
    void columns_forward(CallOperand input, Slot output, std::optional<Module> group);
    /// In the backward, of an input that is made again.
    void columns_forward_again(CallOperand input, Slot output);
    /// Returns the input's gradient, allocated, and adds to the weight's. `input`: makes the bf16 input ready and says
    /// where it is; called once, and never where a copy was kept.
    Slot columns_backward(CallOperand gradient, const std::function<CallOperand()>& input);

    /// `output` = residual + the sum over ranks of input W^T (+ bias); allocates it.
    void depth_forward(CallOperand input, Slot output, CallOperand residual);
    /// The input's gradient, allocated. `gradient`: of all tokens.
    Slot input_gradient(CallOperand gradient);
    /// Adds to the weight's gradient; behind `input_gradient`.
    void weight_gradient(CallOperand gradient, CallOperand input);

private:
    StowageWriter& writer_;
    LinearWeights weights_;
    bool keeps_copy_;
    std::optional<Fp8Linear> fp8_;
};

}  // namespace stowage::layers
