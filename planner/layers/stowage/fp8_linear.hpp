#pragma once

// One linear of a layer whose products are in FP8, tensors scaled as wholes by what is in them.
//
// Each operand is measured (fp8_scale) and rounded to FP8 (fp8_quantize) before its product: inputs and weights to
// e4m3, gradients to e5m2. cuBLASLt on Hopper sums along rows of both factors only, so the weight gradient takes the
// transposed input and gradient, and the input gradient the transposed weight: one pass writes both forms. Results are
// bf16, weight gradients are added to in the main gradients' type. A weight's copies are made once a step, before the
// layer's first forward (fp8_preparation).
//
// Kept for the backward: the scales, and either the transposed FP8 input, one byte an element, or nothing more, where
// the layer has the bf16 input in its backward anyway (saved for another reason, or made again); it is then rounded
// again with the same scales, which gives the same bits.
//
// Source: Transformer Engine, common/recipe (Float8CurrentScaling, format hybrid), pytorch/module/linear.py
// (save_original_input; weights quantised in the first microbatch).
//
// Tested by: tests/planner/layers/stowage_fp8_test.cpp, tests/planner/program/stowage_fp8_programs_test.cpp.

#include <functional>
#include <optional>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

class Fp8Linear {
public:
    /// Declares tensors. Keeps a reference to the writer. `keeps_copy`: of the input; otherwise `weight_gradient` is
    /// given it.
    Fp8Linear(StowageWriter& writer, const LinearWeights& linear, bool keeps_copy);

    /// y = input W^T + bias + addend into `output`, which it allocates; saves what it keeps of the input in `group`.
    void forward(CallOperand input, Slot output, std::optional<CallOperand> addend, std::optional<Module> group);
    /// In the backward, of an input that is made again.
    void forward_again(CallOperand input, Slot output);
    /// The input's gradient, allocated [s, b, depth]. Keeps the FP8 gradient for `weight_gradient`, which comes next.
    Slot input_gradient(CallOperand gradient);
    /// Adds to the gradients of weight and bias. `input`: makes the bf16 input ready; called where no copy was kept.
    void weight_gradient(CallOperand gradient, const std::function<CallOperand()>& input);

private:
    /// Of a tensor [tokens, columns].
    [[nodiscard]] CallSizes conversion(std::int64_t columns, bool gradient) const;
    void measure(const std::string& name, CallOperand from, const CallSizes& sizes, Slot scales);
    void quantize(const std::string& name, CallOperand from, CallOperand scales, CallSizes sizes,
                  std::optional<Slot> plain, std::optional<Slot> transposed);
    void multiply(CallOperand input, CallOperand scales, Slot output, std::optional<CallOperand> addend,
                  std::optional<Slot> transposed);
    void save(std::optional<Module> group);
    CallOperand transposed_input(const std::function<CallOperand()>& input);

    StowageWriter& writer_;
    LinearWeights linear_;
    bool keeps_copy_;
    Slot scales_{};
    Slot plain_{};       ///< fp8 [tokens, depth]
    Slot transposed_{};  ///< fp8 [depth, tokens]
    Slot gradient_scales_{};
    Slot plain_gradient_{};       ///< fp8 [tokens, columns]
    Slot transposed_gradient_{};  ///< fp8 [columns, tokens]
    SavedIndex saved_scales_{};
    std::optional<SavedIndex> copy_;
};

/// What makes the FP8 copies of a layer's weights; nothing where it has none.
std::optional<LayerScript> fp8_preparation(const LayerScript& layer);

}  // namespace stowage::layers
