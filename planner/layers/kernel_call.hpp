#pragma once

// What a kernel of the layers computes, and on which buffers: enough to launch it.
//
// Scripts of implementation `megatron` say only what a kernel costs, since PyTorch and Transformer Engine run it. Those
// of implementation `stowage` also say what it is, and the executor's workload runs that. What has no arithmetic here
// can be stood in for: `stand_in` takes the time, the class and the bytes of a kernel (program/stand_ins.hpp makes
// them). Matrices are row by row, in bf16 unless said otherwise; T is `rows`, the tokens; vectors of statistics are
// fp32.
//
// Tested by: tests/planner/layers/stowage_*_test.cpp, tests/executor/.

#include <cstdint>
#include <string_view>
#include <vector>

#include "scenarios/types/data_type.hpp"
#include "scenarios/types/hardware.hpp"

namespace stowage::layers {

/// Operands in order; [x] stands only where the call says that it has one. `out` and `inout` ones are written.
enum class Call : std::uint8_t {
    none,
    load_tokens,         ///< out tokens int32[rows]: pseudo-random below `columns`, by step and microbatch; labels: 1
                         ///< more behind (`shift`), in each part of the rows (`depths`) one more than in the one before
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
    cross_entropy_forward,  ///< logits[rows, columns], labels, out log-sum-exp fp32[rows], out losses fp32[microbatch]:
                            ///< the sum over rows, those of the first part times `value`, others times `later_value`
    cross_entropy_backward,  ///< inout logits, becoming their gradient; labels, log-sum-exp
    mean_square_forward,     ///< y[rows, columns], out losses fp32[microbatch], workspace fp32[norm_partials(rows)]
    mean_square_backward,    ///< y, out dy
    head_norm_forward,   ///< packed[rows, (heads + 2 groups) head_size], query weight[head_size], key weight, [table],
                         ///< out packed: RMSNorm of every head of query and key, then the rotary turn, where there is a
                         ///< table (`rotary`); the value as it is
    head_norm_backward,  ///< packed as before the norm, query weight, key weight, [table], inout packed gradient, inout
                         ///< query weight gradient, inout key weight gradient, workspace fp32[2, norm_partials(rows),
                         ///< head_size]; a row's 1 / rms is computed again
    latent_pack_forward,   ///< q[rows, heads head_size], kv[rows, heads (head_size - rope_size + value_size)],
                           ///< down[rows, stride], table, out packed[rows, heads (2 head_size + value_size)]: queries,
                           ///< keys and values of all heads. The last rope_size columns of a head of q, and those of
                           ///< `down`, which all heads' keys share, are turned
    latent_pack_backward,  ///< packed gradient, table, out dq, out dkv, out ddown: its last rope_size columns only
    router_forward,   ///< logits fp32[rows, experts], assignment int32[rows, topk], out weights fp32[rows, topk] of the
                      ///< assigned experts, out choice int32[rows, topk] that the scores alone would have made
    router_backward,  ///< logits, assignment, dweights fp32[rows, topk], out dlogits bf16[rows, experts]
    route_rows,       ///< assignment int32[rows, topk], out places int32[rows, topk], out sources int32[rows topk], out
                 ///< counts int32[experts]: places of the choices in the order of experts, and of tokens within one;
                 ///< the choice (token topk + k) at each place
    counts_to_host,   ///< counts int32[experts]: written to the host, which compares them when it next waits: more than
                      ///< `depth` rows for one expert is an error
    permute_forward,  ///< x[rows, columns], weights fp32[rows, topk], sources, out y[rows topk, columns], out row
                      ///< weights fp32[rows topk]
    permute_backward,  ///< dy, drow_weights, places, out dx[rows, columns], out dweights fp32[rows, topk]
    exchange_rows,     ///< x[rows, columns], [fp32[rows]], out y[depth, columns], [out fp32[depth]]: what `batch` ranks
                       ///< would send, each as this one does: in blocks by expert and rank where x has them by rank and
                       ///< expert (`forward`), or back. Row i of a block comes from row i modulo the other's length
    unpermute_forward,   ///< y[rows topk, columns], places, [addend[rows, columns]], out z[rows, columns]: sums of the
                         ///< choices of a token
    unpermute_backward,  ///< dz[rows, columns], sources, out dy[rows topk, columns]
    weighted_activation_forward,  ///< g[rows, 2 columns], weights fp32[rows], out a[rows, columns]: SwiGLU times weight
    weighted_activation_backward,  ///< g, weights, da, out dg, out a, out dweights fp32[rows]
    grouped_linear_forward,  ///< a[rows, depth], weight[experts, columns, depth], out y[rows, columns], workspace:
                             ///< expert e has rows rows_before(e) to rows_before(e + 1)
    grouped_linear_input_gradient,   ///< dy[rows, columns], weight, out da[rows, depth], workspace
    grouped_linear_weight_gradient,  ///< dy, a, inout weight gradient[experts, columns, depth], workspace
    fp8_scale,  ///< x[rows, columns], out scales fp32[2]: what one in FP8 stands for, and what x is multiplied with on
                ///< its way there: the largest number of the format over the largest |x| (1 where that is 0 or not
                ///< finite); workspace fp32[norm_partials(rows)]
    fp8_quantize,        ///< x[rows, columns], scales, [out q[rows, columns]], [out q transposed[columns, rows]]: the
                         ///< nearest number of the format, at most its largest
    fp8_linear_forward,  ///< a[rows, depth], its scales, weight[columns, depth], its scales, [bias[columns]],
                         ///< [addend[rows, columns]], out y[rows, columns], workspace; a and weight in e4m3
    fp8_linear_input_gradient,   ///< dy[rows, columns] in e5m2, scales, transposed weight[depth, columns], scales, out
                                 ///< da[rows, depth], workspace
    fp8_linear_weight_gradient,  ///< transposed dy[columns, rows] in e5m2, scales, transposed a[depth, rows],
                                 ///< scales, inout weight gradient[columns, depth], workspace
    repeat_rows,    ///< x[rows, columns], out y[batch rows, columns]: what `batch` ranks that each hold x would gather
    keep_rows,      ///< x[batch rows, columns], out y[rows, columns]: the first ones, what of a sum over ranks is this
                    ///< one's; with `shift` those behind them
    join_columns,   ///< a[rows, columns], b[rows, columns], out y[rows, 2 columns]: row by row a's columns, then b's
    split_columns,  ///< y, out a, out b: the other way round
    add,            ///< inout x[rows, columns], y: x += y
    gradient_norm,  ///< gradient[rows], inout fp32[2]: its length, and the factor that clips it to `value`; workspace
                    ///< fp32[norm_partials(rows)]
    adam_update,    ///< gradient[rows], gradient norm fp32[2], inout master fp32[rows], inout first moment fp32[rows],
                    ///< inout second moment fp32[rows], out parameters bf16[rows]: AdamW, rate 1e-5, decay 0.01
    clear,          ///< out buffer of `rows` bytes
    copy,           ///< source, out destination, of `rows` bytes
    stand_in,  ///< [x]..., [out y]..., [inout sums]: the work of `stand_in` in place of a kernel whose arithmetic is
               ///< not here; what it writes depends on all that it reads
};
std::string_view name_of(Call call);

/// Whether a buffer of a call is read, written, or both.
enum class Access : std::uint8_t { read, write, read_write };

/// The rank's own buffers, as calls name them; see StateBuffer::role.
enum class StowageState : std::uint8_t {
    parameters,
    gradients,
    losses,
    workspace,
    rotary_table,
    assignment,  ///< int32[tokens, topk]: the experts of every token, the same in all layers
    master_parameters,
    first_moment,
    second_moment,
    gradient_norm,
    fp8_weights,  ///< of each linear in FP8 scales, weight and transposed weight; see Fp8Place
};
inline constexpr std::size_t kStowageStates = 11;

/// Where the FP8 copies of a weight lie in their state, in bytes; none of a parameter without them.
struct Fp8Place {
    std::int64_t scales = -1;
    std::int64_t plain = -1;
    std::int64_t transposed = -1;  ///< [depth, columns]
    friend bool operator==(const Fp8Place&, const Fp8Place&) = default;
};

/// One operand of a call in a script.
struct CallOperand {
    enum class Kind : std::uint8_t {
        tensor,                 ///< index: Slot
        saved,                  ///< index: SavedIndex; wherever the tensor is by then
        parameter,              ///< index: into the script's parameters
        gradient,               ///< of a parameter, the same index
        state,                  ///< index: StowageState
        fp8_weight,             ///< of a parameter, its FP8 copy
        fp8_transposed_weight,  ///< the same transposed
        fp8_weight_scales,      ///< what both were made with
    };
    Kind kind{};
    std::uint16_t index = 0;
    Access access = Access::read;
    friend bool operator==(const CallOperand&, const CallOperand&) = default;
};

/// What a stand-in does, and what it touches of each operand, in order: the first bytes, multiples of 16. Buffers may
/// be longer.
struct StandInWork {
    types::KernelClass kind{};
    types::Nanoseconds length{0};  ///< from its start to its end
    types::Bytes traffic{};        ///< read and written, its operands' bytes among them
    std::vector<types::Bytes> reads;
    std::vector<types::Bytes> writes;
    types::Bytes sums{};  ///< of the last operand, added to; 0: the call has none
    friend bool operator==(const StandInWork&, const StandInWork&) = default;
};
inline constexpr std::size_t kMostStandInReads = 8;
inline constexpr std::size_t kMostStandInWrites = 8;
/// Operands are read and written in pieces of so many bytes; what is left over at their ends is left alone.
inline constexpr std::int64_t kStandInPiece = 16;

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
    std::int64_t stride = 0;      ///< elements from row to row of a norm's x and dx, and of `down`; 0: `columns`
    std::int64_t value_size = 0;  ///< of a head's value and of attention's output; 0: head_size
    std::int64_t rope_size = 0;   ///< latent_pack: columns of a head that are turned
    std::int64_t experts = 0;     ///< of the model; of this rank in grouped_linear and exchange_rows
    std::int64_t topk = 0;
    std::int64_t depths = 0;  ///< load_tokens, cross_entropy: the rows are so many equal parts, the model's and those
                              ///< of predictions one token further on each; 0: one
    std::int64_t router_groups =
        0;  ///< router: experts lie in so many groups, of which `router_topk_groups` count; 0: one
    std::int64_t router_topk_groups = 0;
    std::int64_t workspace_bytes = 0;  ///< of the last operand, where it is a workspace
    std::int64_t parts = 1;            ///< attention_backward: what the workspace is meant for, heads / parts of one
                                       ///< sequence at a time; 1: all at once
    double value = 0;                  ///< epsilon of a norm; scale of attention, a loss or routing weights
    double later_value = 0;            ///< cross_entropy: `value` of the rows behind the first part
    bool layer_norm = false;           ///< with mean and bias; otherwise RMSNorm
    bool gated = false;                ///< SwiGLU, otherwise GELU
    bool has_bias = false;             ///< linear_forward
    bool has_addend = false;           ///< linear_forward: added to the product; norm_backward: the residual gradient
    bool rotary = false;               ///< head_norm: turned behind the norm
    bool sigmoid = false;        ///< router: scores by expert, of which those chosen are scaled to a sum of `value`;
                                 ///< otherwise a softmax over those chosen
    bool softmax_first = false;  ///< router: a softmax over all experts, times `value`
    bool forward = false;        ///< exchange_rows: to the experts
    bool fp32_result = false;    ///< linear_forward: y is fp32
    bool e5m2 = false;           ///< fp8_scale, fp8_quantize: the format of gradients; otherwise e4m3
    bool plain = false;          ///< fp8_quantize: q as x lies
    bool transposed = false;     ///< fp8_quantize: q with rows as columns
    bool shift = false;          ///< load_tokens: labels, the next token of each place; keep_rows: the second rows
    types::DataType gradient_type = types::DataType::bf16;  ///< of weight gradients, which are added to
    StandInWork stand_in = {};
    friend bool operator==(const CallSizes&, const CallSizes&) = default;
};

struct KernelCall {
    Call call = Call::none;
    CallSizes sizes;
    std::vector<CallOperand> operands;
    friend bool operator==(const KernelCall&, const KernelCall&) = default;
};

/// Kernels and memsets that the executor launches for it, each of which takes a place in a stream's launch queue: a
/// GEMM's or an attention's kernel has a memset in front of it, sums over rows end with a kernel that adds up parts,
/// and attention's backward is a memset, the rows' sums, the gradients, those of the query, and with shared keys and
/// values two more that add them up, for each part of the heads. Source: activities by operation in
/// scenarios/recordings; single GEMMs have no memset there. 1 for Call::none.
std::int64_t launches_of(const KernelCall& call);

/// Rows of partial sums that norm_backward, bias_gradient and mean_square_forward leave before they are added up: as
/// many as the blocks that fill a device, the same number on every device so that results do not depend on it.
constexpr std::int64_t norm_partials(std::int64_t rows) { return rows < 264 ? rows : 264; }

/// What fp8_quantize and the linears in FP8 take: multiples of it, 16 bytes of a row.
inline constexpr std::int64_t kFp8Multiple = 16;

/// First row of an expert, of `rows` spread over `experts` as evenly as whole rows allow.
constexpr std::int64_t rows_before(std::int64_t expert, std::int64_t rows, std::int64_t experts) {
    return expert * rows / experts;
}

}  // namespace stowage::layers
