#pragma once

// What a kernel of the layers computes, and on which buffers: enough to launch it.
//
// Scripts of implementation `megatron` say only what a kernel costs, since PyTorch and Transformer Engine run it. Those
// of implementation `stowage` also say what it is, and the executor's workload runs that. Matrices are row by row, in
// bf16 unless said otherwise; T is `rows`, the tokens; vectors of statistics are fp32.
//
// Tested by: tests/planner/layers/stowage_*_test.cpp, tests/executor/.

#include <cstdint>
#include <string_view>
#include <vector>

#include "scenarios/types/data_type.hpp"

namespace stowage::layers {

/// Operands in order; [x] stands only where the call says that it has one. `out` and `inout` ones are written.
enum class Call : std::uint8_t {
    none,
    load_tokens,         ///< out tokens int32[rows]: pseudo-random below `columns`, by step and microbatch; labels: 1
                         ///< more behind (`shift`)
    load_hidden,         ///< out x[rows, columns]: pseudo-random, by step and microbatch
    embedding_forward,   ///< tokens, table[columns_of_table = depth, columns], out y[rows, columns]
    embedding_backward,  ///< tokens, dy[rows, columns], inout table gradient; deterministic
    norm_forward,        ///< x[rows, columns], weight, [bias], out y, out rstd[rows], [out mean[rows]]
    norm_backward,   ///< x, weight, rstd, [mean], dy, [residual gradient, added], out dx, inout weight gradient, [inout
                     ///< bias gradient], workspace fp32[norm_partials(rows), columns] (two of them with bias)
    linear_forward,  ///< a[rows, depth], weight[columns, depth], [bias[columns]], [addend[rows, columns]], out y[rows,
                     ///< columns], workspace
    linear_input_gradient,   ///< dy[rows, columns], weight[columns, depth], out da[rows, depth], workspace
    linear_weight_gradient,  ///< dy[rows, columns], a[rows, depth], inout weight gradient[columns, depth], workspace
    bias_gradient,        ///< dy[rows, columns], inout bias gradient[columns], workspace fp32[norm_partials, columns]
    rotary_forward,       ///< inout packed[rows, (heads + 2 groups) head_size], table
    rotary_backward,      ///< the same, turned back
    attention_forward,    ///< packed[rows, (heads + 2 groups) head_size], out o[rows, heads head_size], out statistics
                          ///< fp32[batch, heads, sequence], workspace
    attention_backward,   ///< packed, o, statistics, do, out packed gradient, workspace
    activation_forward,   ///< g[rows, 2 columns] (SwiGLU: gate, then value) or [rows, columns] (GELU), out a[rows,
                          ///< columns]
    activation_backward,  ///< g, da[rows, columns], out dg (as g), out a[rows, columns], computed again
    cross_entropy_forward,   ///< logits[rows, columns], labels, out log-sum-exp fp32[rows], out losses fp32[microbatch]
    cross_entropy_backward,  ///< inout logits, becoming their gradient; labels, log-sum-exp
    mean_square_forward,     ///< y[rows, columns], out losses fp32[microbatch], workspace fp32[norm_partials(rows)]
    mean_square_backward,    ///< y, out dy
    clear,                   ///< out buffer of `rows` bytes
    copy,                    ///< source, out destination, of `rows` bytes
};
std::string_view name_of(Call call);

/// Whether a buffer of a call is read, written, or both.
enum class Access : std::uint8_t { read, write, read_write };

/// The rank's own buffers, by their place among the states of implementation `stowage`.
enum class StowageState : std::uint8_t { parameters, gradients, losses, workspace, rotary_table };

/// One operand of a call in a script.
struct CallOperand {
    enum class Kind : std::uint8_t {
        tensor,     ///< index: Slot
        saved,      ///< index: SavedIndex; wherever the tensor is by then
        parameter,  ///< index: into the script's parameters
        gradient,   ///< of a parameter, the same index
        state,      ///< index: StowageState
    };
    Kind kind{};
    std::uint16_t index = 0;
    Access access = Access::read;
    friend bool operator==(const CallOperand&, const CallOperand&) = default;
};

/// Numbers that a call needs beside its buffers; see Call for which apply.
struct CallSizes {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t depth = 0;
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::int64_t heads = 0;
    std::int64_t groups = 0;
    std::int64_t head_size = 0;
    std::int64_t workspace_bytes = 0;  ///< of the last operand, where it is a workspace
    double value = 0;                  ///< epsilon of a norm; scale of attention or of a loss's gradient
    bool layer_norm = false;           ///< with mean and bias; otherwise RMSNorm
    bool gated = false;                ///< SwiGLU, otherwise GELU
    bool has_bias = false;             ///< linear_forward
    bool has_addend = false;           ///< linear_forward: added to the product; norm_backward: the residual gradient
    bool shift = false;                ///< load_tokens: labels, the next token of each place
    types::DataType gradient_type = types::DataType::bf16;  ///< of weight gradients, which are added to
    friend bool operator==(const CallSizes&, const CallSizes&) = default;
};

struct KernelCall {
    Call call = Call::none;
    CallSizes sizes;
    std::vector<CallOperand> operands;
    friend bool operator==(const KernelCall&, const KernelCall&) = default;
};

/// Rows of partial sums that norm_backward, bias_gradient and mean_square_forward leave before they are added up: as
/// many as the blocks that fill a device, the same number on every device so that results do not depend on it.
constexpr std::int64_t norm_partials(std::int64_t rows) { return rows < 264 ? rows : 264; }

}  // namespace stowage::layers
