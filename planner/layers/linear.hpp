#pragma once

// The linears of a Transformer Engine layer.
//
// NormLinear (LayerNormLinear, split by columns): norm, then y = norm(x) W. With sequence parallelism the normed input
// is gathered over the sequence for the GEMM and thrown away; the backward gathers it again for the weight gradient
// and reduce-scatters the input's gradient. Without, the input's gradient is all-reduced.
// Linear: the same without a norm; or, `Split::none`, a weight that every tensor rank holds whole and applies to its
// own tokens, without communication.
// RowLinear (split by rows): y = x W is a partial sum, reduce-scattered over the sequence or all-reduced.
// In FP8 what is gathered is FP8; what is reduced has 16 bits.
// Source: Transformer Engine, pytorch/module/layernorm_linear.py and linear.py.

#include <optional>
#include <string>

#include "planner/layers/norm.hpp"
#include "planner/layers/operand.hpp"

namespace stowage::layers {

enum class Split : std::uint8_t { columns, rows, none };

/// Names, sizes and places of one linear. `width` is this rank's share of the sharded side.
struct LinearSite {
    std::string name;       ///< of the linear
    std::string norm_name;  ///< of the norm fused into it (NormLinear only)
    Part part{};
    Part norm_part{};
    std::int64_t width = 0;
    bool bias = false;
    std::optional<Module> group;
    std::int64_t other_width = 0;  ///< the side that is not sharded; 0: hidden
    Split split = Split::columns;
    bool save_original = false;  ///< see OperandUse
};

struct NormLinear {
    SavedNorm norm;
    SavedOperand normed;
    Slot output{};
};

struct Linear {
    SavedOperand input;
    Slot output{};
};

/// `input` [local tokens, in] -> output [tokens, width], or [local tokens, width] with Split::none; allocated and left
/// to the caller. `input` is not dropped. `saved_as`: what is saved in place of an input that is emptied and rebuilt
/// (rebuilt.hpp); it is then saved as the original in every precision.
Linear linear_forward(Writer& writer, const LinearSite& site, Slot input, std::optional<Slot> saved_as = std::nullopt);
/// Drops `gradient` and returns the gradient of the input [local tokens, in].
Slot linear_backward(Writer& writer, const LinearSite& site, const Linear& linear, Slot gradient);
void linear_parameters(Writer& writer, const LinearSite& site);

/// `input` [local tokens, h] -> output [tokens, width], allocated and left to the caller.
NormLinear norm_linear_forward(Writer& writer, const LinearSite& site, Slot input);
/// Drops `gradient` [tokens, width] and fills `grad_input` [local tokens, h], which it allocates.
void norm_linear_backward(Writer& writer, const LinearSite& site, const NormLinear& linear, Slot gradient,
                          Slot grad_input);

struct RowLinear {
    SavedOperand input;
    Slot output{};
};

/// `input` [tokens, width] -> output [local tokens, h], allocated and left to the caller. `input` is not dropped.
RowLinear row_linear_forward(Writer& writer, const LinearSite& site, Slot input);
/// Returns the gradient of the input [tokens, width]; the incoming gradient [local tokens, h] is not dropped.
Slot row_linear_backward(Writer& writer, const LinearSite& site, const RowLinear& linear);

void norm_linear_parameters(Writer& writer, const LinearSite& site);
void row_linear_parameters(Writer& writer, const LinearSite& site);

}  // namespace stowage::layers
