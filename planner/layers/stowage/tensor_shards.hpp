#pragma once

// Tensor parallelism around the linears of stowage's layers. With one tensor-parallel rank nothing is added.
//
// A linear whose columns are split takes all tokens' rows; one whose depth is split makes sums over ranks. With
// sequence parallelism hidden states lie in shares of s / ranks between them: gathered before the first (and again for
// its weight gradient, since only the share is saved), summed and scattered behind the second. Without it sums are
// all-reduced in place. Other ranks are absent: their time is the collective's, their rows are copies of this rank's
// (repeat_rows), and of a sum this rank keeps its first rows (keep_rows). The collectives of a split linear's backward
// run beside its products.
//
// Residuals are added behind the sum, so that they count once. A bias in front of a sum would not: it is refused.
//
// Tested by: tests/planner/layers/stowage_tensor_test.cpp, tests/planner/program/stowage_slices_test.cpp.

#include <functional>
#include <optional>
#include <string>

#include "planner/layers/stowage/stowage_writer.hpp"

namespace stowage::layers {

/// All tokens' rows of a hidden-state tensor: itself, or gathered.
struct WholeRows {
    CallOperand rows;
    std::optional<Slot> made;
};
WholeRows whole_rows(StowageWriter& writer, const std::string& name, CallOperand share);
void drop_whole_rows(StowageWriter& writer, const WholeRows& whole);

/// `whole` [s, b, h], each rank's part of a sum, becomes `output` as it lies between layers, allocated if it is another
/// tensor: with sequence parallelism. Otherwise the two are the same variable.
void sum_over_ranks(StowageWriter& writer, const std::string& name, Slot whole, Slot output);
/// The variable that `sum_over_ranks` takes for `output`; not allocated.
Slot summands(StowageWriter& writer, const std::string& name, Slot output);

/// y = input W^T (+ bias) for this rank's columns, of a hidden-state tensor.
void split_columns_forward(StowageWriter& writer, const LinearWeights& linear, CallOperand input, Slot output);
/// Returns the input's gradient, allocated. `input`: makes the input ready and says where it is; called once. Adds to
/// the weight's gradient.
Slot split_columns_backward(StowageWriter& writer, const LinearWeights& linear, CallOperand gradient,
                            const std::function<CallOperand()>& input);

/// `output` = residual + the sum over ranks of input W^T (+ bias); allocates it.
void split_depth_forward(StowageWriter& writer, const LinearWeights& linear, CallOperand input, Slot output,
                         CallOperand residual);

}  // namespace stowage::layers
