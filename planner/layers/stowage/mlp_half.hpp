#pragma once

// The feed-forward half of stowage's layer: norm, fc1, SwiGLU or GELU, fc2 with the residual added in it.
//
// Saved: the half's input in the group mlp_norm, and outside of any group the norm's output and statistics and fc1's
// output. The input itself lives until the residual has been added. The activation is not: the kernel that makes fc1's
// gradient makes it again beside, at the cost of writing it. Recomputation: `layernorm` saves nothing of the norm;
// `mlp` saves the half's input alone and begins the backward with norm and fc1.
//
// In FP8 fc1 saves an FP8 copy of the norm's output in its place.
//
// Tested by: tests/planner/layers/stowage_layers_test.cpp.

#include "planner/layers/stowage/layer_linear.hpp"
#include "planner/layers/stowage/norm_saves.hpp"

namespace stowage::layers {

class MlpHalf {
public:
    /// Declares parameters and tensors. Keeps a reference to the writer.
    explicit MlpHalf(StowageWriter& writer);

    /// `input` -> kOutput. `input` is not dropped.
    void forward(Slot input);
    /// kGradOutput -> `grad_input`, allocated. Drops kGradOutput.
    void backward(Slot grad_input);

private:
    [[nodiscard]] CallSizes activation_sizes() const;
    void norm_again();
    void run_fc1_again();
    /// Returns the gradient of fc1's output.
    Slot activation_backward();
    Slot fc1_backward(Slot gradient);

    StowageWriter& writer_;
    bool fc1_again_;
    StowageNorm norm_;
    NormSaves norm_saves_;
    LayerLinear fc1_;
    LayerLinear fc2_;
    Slot expanded_{};   ///< fc1's output, [s, b, ffn], twice that when gated
    Slot activated_{};  ///< [s, b, ffn]
    std::optional<SavedIndex> saved_expanded_;
};

}  // namespace stowage::layers
